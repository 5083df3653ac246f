"""The router: pools, consumers and what is on its way between them, put together and changed as one."""

import asyncio
from collections.abc import Callable
from heapq import nsmallest

from penstock.delivery import Breakers, BreakerView
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.ops.config import RouterOptions
from penstock.queues import QueueSpec, Source
from penstock.router.config.configuration import RouterConfiguration
from penstock.router.config.plan import plan_queues
from penstock.router.intake.consumers import Consumers
from penstock.router.intake.routing import Routing
from penstock.router.intake.tracker import InFlightTracker, TrackedMessage
from penstock.router.monitoring.views import (
    InFlightFilter,
    InFlightPage,
    InFlightPlace,
    InFlightView,
    QueueView,
    RouterGroupView,
    RouterPoolView,
)
from penstock.router.monitoring.warnings import ROUTER, WarningCode, Warnings, WarningSeverity
from penstock.router.pools.counts import RouterMetrics
from penstock.router.pools.pool import Mediator
from penstock.router.pools.pools import Pools

_ALL = InFlightFilter()


class Router:
    """Everything between the queues and the endpoints."""

    def __init__(
        self,
        make_source: Callable[[QueueSpec], Source],
        mediator: Mediator,
        clock: Clock,
        warnings: Warnings,
        metrics: RouterMetrics,
        breakers: Breakers,
        limits: RouterOptions | None = None,
    ) -> None:
        self._clock = clock
        self._warnings = warnings
        self._breakers = breakers
        self._limits = limits or RouterOptions()
        self._loop = asyncio.get_running_loop()
        self._tracker = InFlightTracker()
        self._pools = Pools(mediator, self._tracker, clock, warnings, metrics)
        routing = Routing(self._tracker, self._pools.serving, warnings, clock, self._loop.time)
        self._consumers = Consumers(
            make_source, routing.route, self._tracker, clock, warnings, self._limits.consumer_health_s
        )

    async def apply(self, configuration: RouterConfiguration) -> None:
        """Make pools and consumers what the configuration says; what did not change goes on untouched."""
        limits = self._limits
        pools = self._pools.plan(configuration.processing_pools, limits.max_pools, limits.pool_warning_threshold)
        for pool in pools.create:
            self._pools.make(pool)
        queues = plan_queues(self._consumers.queues, configuration.queues)
        for name in queues.stop:
            self._consumers.retire(name)
        for code in pools.drain:
            self._pools.drain(code)
        for queue in queues.start:
            await self._consumers.start(queue)
        await asyncio.gather(*(self._pools.change(pool) for pool in pools.change))

    async def change_pool(
        self, code: str, *, concurrency: int | None, rate_limit_per_minute: int | None, unlimited_rate: bool
    ) -> bool:
        """Change a pool's limits until the next configuration says otherwise; what is None stays.

        False if there is no such pool; FailedPrecondition if deliveries did not end in time for a lower concurrency.
        """
        return await self._pools.change_limits(
            code,
            concurrency=concurrency,
            rate_limit_per_minute=rate_limit_per_minute,
            unlimited_rate=unlimited_rate,
        )

    async def restart_consumer(self, name: str) -> bool:
        """Put a new consumer in the place of one; False if there is none, or no new one could be made."""
        return await self._consumers.restart(name)

    # --- scheduled tasks (ROUTER-TASK-1)

    async def restart_unhealthy_consumers(self) -> None:
        """Every 60 s."""
        await self._consumers.restart_unhealthy()

    async def clean_up_drained(self) -> None:
        """Every 10 s."""
        self._pools.forget_spent()
        await self._consumers.close_idle()

    async def check_for_leaks(self) -> None:
        """Every 30 s."""
        in_flight, capacity = len(self._tracker), self._pools.capacity
        if in_flight > capacity:
            self._warnings.add(
                WarningCode.PIPELINE_MAP_LEAK,
                WarningSeverity.WARN,
                ROUTER,
                f"LEAK DETECTION: in-flight tracker size ({in_flight}) > total capacity ({capacity})",
            )

    # --- stopping

    async def shut_down(self) -> None:
        """Stop polling, finish what is being delivered, give back the rest (ROUTER-STOP-1 to 3)."""
        limits = self._limits
        failures_before = self._consumers.settlement_failures
        await self._consumers.stop_all(limits.stop_consumers_s)
        await self._pools.drain_all(limits.drain_pools_s)
        # Every message has been settled or is being settled by now.
        await self._consumers.settle_all(limits.stop_consumers_s)
        self._warn_of_unsettled(self._consumers.settlement_failures - failures_before + len(self._tracker))
        await self._consumers.close_all(limits.stop_consumers_s)

    def _warn_of_unsettled(self, messages: int) -> None:
        if messages:
            self._warnings.add(
                WarningCode.SHUTDOWN_CLEANUP_ERRORS,
                WarningSeverity.WARN,
                ROUTER,
                f"{messages} messages could not be given back; they come again when their leases end",
            )

    # --- views

    def pools(self) -> list[RouterPoolView]:
        """All pools, those that are being drained last."""
        return [pool.view() for pool in self._pools.all()]

    def queues(self) -> list[QueueView]:
        """All consumed queues, those that are no longer wanted last."""
        return [consumer.view() for consumer in self._consumers.all()]

    def groups(self, pool: str | None) -> list[RouterGroupView]:
        """The groups that have messages, of one pool or of all."""
        return [group for each in self._pools if pool in (None, each.code) for group in each.groups()]

    def in_flight(self, most: int, wanted: InFlightFilter = _ALL, after: InFlightPlace | None = None) -> InFlightPage:
        """Messages on their way that come after a place, the oldest first."""
        found = [
            message
            for message in self._tracker
            if _fits(message, wanted) and (after is None or _place(message) > after)
        ]
        first = nsmallest(most, found, _place)
        last = _place(first[-1]) if len(found) > most else None
        return InFlightPage([self._in_flight_view(message) for message in first], last)

    def find(self, message_id: str) -> InFlightView | None:
        """A message on its way, by its own id or the broker's."""
        message = self._tracker.of_message_id(message_id)
        if message is None:
            found = (self._tracker.of_broker_id(each.name, message_id) for each in self._consumers.all())
            message = next((each for each in found if each is not None), None)
        return self._in_flight_view(message) if message is not None else None

    def _in_flight_view(self, message: TrackedMessage) -> InFlightView:
        elapsed_ms = round((self._loop.time() - message.tracked_s) * SECOND_MS)
        return InFlightView(
            message_id=message.pointer.id,
            broker_message_id=message.received.broker_id,
            queue=message.origin.name,
            pool_code=message.pool.code,
            message_group_id=message.pointer.group,
            mediation_target=message.pointer.mediation_target,
            state=message.stage.name,
            attempt=message.attempt,
            tracked_at_ms=self._clock.now_ms() - elapsed_ms,
            elapsed_ms=elapsed_ms,
        )

    def breakers(self) -> list[BreakerView]:
        """The breakers of all endpoints."""
        return self._breakers.views()

    def reset_breaker(self, endpoint: str) -> bool:
        """Close the breaker of an endpoint; False if there is none."""
        return self._breakers.reset(endpoint)

    def reset_breakers(self) -> int:
        """Close every breaker; how many there are."""
        return self._breakers.reset_all()


def _fits(message: TrackedMessage, wanted: InFlightFilter) -> bool:
    return (
        wanted.message_id in (None, message.pointer.id, message.received.broker_id)
        and wanted.pool in (None, message.pool.code)
        and wanted.queue in (None, message.origin.name)
    )


def _place(message: TrackedMessage) -> InFlightPlace:
    return message.tracked_s, message.pointer.id

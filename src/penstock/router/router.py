"""The router: consumers, pools and the messages in flight between them."""

import asyncio
import logging
from collections.abc import Callable, Collection
from heapq import nsmallest

from penstock.delivery import Breakers, BreakerView
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.ops.config import RouterOptions
from penstock.queues import QueueSpec, Source
from penstock.router.config.configuration import RouterConfiguration
from penstock.router.config.plan import plan_queues
from penstock.router.intake.batch_router import BatchRouter
from penstock.router.intake.consumers import Consumers
from penstock.router.intake.tracker import InFlightTracker, TrackedMessage
from penstock.router.monitoring.views import (
    InFlightFilter,
    InFlightPage,
    InFlightPosition,
    InFlightView,
    QueueView,
    RouterGroupView,
    RouterPoolView,
)
from penstock.router.monitoring.warnings import ROUTER, WarningCode, Warnings, WarningSeverity
from penstock.router.pools.counts import RouterMetrics
from penstock.router.pools.mediator import Mediator, StagedMediator
from penstock.router.pools.pools import Pools
from penstock.router.pools.shared_rate import PermitSource

_log = logging.getLogger(__name__)

_ALL = InFlightFilter()
_SHOWN_NAMES = 10


class Router:
    """Delivers the messages of queues to their endpoints."""

    def __init__(
        self,
        make_source: Callable[[QueueSpec], Source],
        mediator: Mediator | StagedMediator,
        clock: Clock,
        warnings: Warnings,
        metrics: RouterMetrics,
        breakers: Breakers,
        limits: RouterOptions | None = None,
        permits: PermitSource | None = None,
    ) -> None:
        self._clock = clock
        self._warnings = warnings
        self._breakers = breakers
        self._limits = limits or RouterOptions()
        self._loop = asyncio.get_running_loop()
        self._tracker = InFlightTracker()
        self._pools = Pools(mediator, self._tracker, clock, warnings, metrics, permits)
        batch_router = BatchRouter(self._tracker, self._pools, warnings, clock, self._loop.time)
        self._consumers = Consumers(
            make_source, batch_router.route, self._tracker, clock, warnings, self._limits.consumer_health_s
        )

    async def apply(self, configuration: RouterConfiguration) -> None:
        """Make pools and consumers match the configuration; unchanged ones are not touched."""
        limits = self._limits
        pools = self._pools.plan(configuration.processing_pools, limits.max_pools, limits.pool_warning_threshold)
        _log_changes("pools created", [pool.code for pool in pools.create])
        _log_changes("pools to be drained", pools.drain)
        _log_changes("pools with new limits", [pool.code for pool in pools.change])
        for pool in pools.create:
            self._pools.create(pool)
        queues = plan_queues(self._consumers.queues, configuration.queues)
        _log_changes("queues to be left", queues.stop)
        _log_changes("queues to be consumed", [queue.queue_name for queue in queues.start])
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
        """Change the limits that are not None, until the next change of the configuration.

        Return False if there is no such pool; raise FailedPrecondition if deliveries do not end in time for a lower
        concurrency.
        """
        return await self._pools.change_limits(
            code,
            concurrency=concurrency,
            rate_limit_per_minute=rate_limit_per_minute,
            unlimited_rate=unlimited_rate,
        )

    async def restart_consumer(self, name: str) -> bool:
        """Replace the consumer of a queue; return False if there is none, or if no new one could be started."""
        return await self._consumers.restart(name)

    async def restart_unhealthy_consumers(self) -> None:
        """Replace the consumers that do not poll."""
        await self._consumers.restart_unhealthy()

    async def clean_up_drained(self) -> None:
        """Remove drained pools and close idle consumers."""
        self._pools.remove_drained()
        await self._consumers.close_idle()

    async def tick(self) -> None:
        """Record that the process runs (ROUTER-HEALTH-6)."""
        self._consumers.running_time.tick()

    async def check_for_leaks(self) -> None:
        """Warn if more messages are tracked than pools hold and queues are settling (ROUTER-TRACK-4)."""
        in_flight, accounted = len(self._tracker), self._pools.held + self._consumers.settling
        if in_flight > accounted:
            self._warnings.add(
                WarningCode.PIPELINE_MAP_LEAK,
                WarningSeverity.WARN,
                ROUTER,
                f"LEAK DETECTION: in-flight tracker size ({in_flight}) > in pools and settlement ({accounted})",
            )

    async def shut_down(self) -> None:
        """Stop polling, finish the deliveries, return the other messages to their queues (ROUTER-STOP-1 to 3)."""
        limits = self._limits
        failures_before = self._consumers.settlement_failures
        await self._consumers.stop_all(limits.stop_consumers_s)
        await self._pools.drain_all(limits.drain_pools_s)
        # By now every message has been settled or is being settled.
        await self._consumers.settle_all(limits.stop_consumers_s)
        self._warn_of_unsettled(self._consumers.settlement_failures - failures_before + len(self._tracker))
        await self._consumers.close_all(limits.stop_consumers_s)

    def _warn_of_unsettled(self, messages: int) -> None:
        if messages:
            self._warnings.add(
                WarningCode.SHUTDOWN_CLEANUP_ERRORS,
                WarningSeverity.WARN,
                ROUTER,
                f"{messages} messages could not be settled; they are redelivered when their leases expire",
            )

    def pools(self) -> list[RouterPoolView]:
        """Return all pools, the draining ones last."""
        return [pool.view() for pool in self._pools.all()]

    def queues(self) -> list[QueueView]:
        """Return all consumed queues, the stopping ones last."""
        return [consumer.view() for consumer in self._consumers.all()]

    def groups(self, pool: str | None) -> list[RouterGroupView]:
        """Return the groups that have messages, of one pool or of all."""
        return [group for each in self._pools if pool in (None, each.code) for group in each.groups()]

    def in_flight(
        self, most: int, wanted: InFlightFilter = _ALL, after: InFlightPosition | None = None
    ) -> InFlightPage:
        """Return matching messages in flight after a position, the oldest first."""
        found = [
            message
            for message in self._tracker
            if _matches(message, wanted) and (after is None or _position(message) > after)
        ]
        first = nsmallest(most, found, _position)
        last = _position(first[-1]) if len(found) > most else None
        return InFlightPage([self._in_flight_view(message) for message in first], last)

    def find(self, message_id: str) -> InFlightView | None:
        """Return a message in flight by its own id or the broker's."""
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
        """Return the breakers of all endpoints."""
        return self._breakers.views()

    def reset_breaker(self, endpoint: str) -> bool:
        """Close the breaker of an endpoint; return False if there is none."""
        return self._breakers.reset(endpoint)

    def reset_breakers(self) -> int:
        """Close all breakers, and return their number."""
        return self._breakers.reset_all()


def _log_changes(what: str, names: Collection[str]) -> None:
    if names:
        shown = ", ".join(list(names)[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
        _log.info("%d %s: %s", len(names), what, shown)


def _matches(message: TrackedMessage, wanted: InFlightFilter) -> bool:
    return (
        wanted.message_id in (None, message.pointer.id, message.received.broker_id)
        and wanted.pool in (None, message.pool.code)
        and wanted.queue in (None, message.origin.name)
    )


def _position(message: TrackedMessage) -> InFlightPosition:
    return message.tracked_s, message.pointer.id

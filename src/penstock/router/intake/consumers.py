"""All consumers of a router: starts them, replaces those that stall, and stops them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.domain.errors import PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.queues import QueueSpec, Source
from penstock.router.intake.consumer import Consumer, Route
from penstock.router.intake.reach import QueueReach, RunningTime
from penstock.router.intake.tracker import InFlightTracker
from penstock.router.monitoring.warnings import ROUTER, WarningCode, Warnings, WarningSeverity

_SHOWN_NAMES = 10

_log = logging.getLogger(__name__)


class Consumers:
    """The consumers by queue name, and the draining ones, which only settle the messages they received."""

    def __init__(
        self,
        make_source: Callable[[QueueSpec], Source],
        route: Route,
        tracker: InFlightTracker,
        clock: Clock,
        warnings: Warnings,
        health_timeout_s: float,
    ) -> None:
        self._make_source = make_source
        self._route = route
        self._tracker = tracker
        self.running_time = RunningTime(clock.now_ms)
        self._warnings = warnings
        self._health_timeout_s = health_timeout_s
        self._consumers: dict[str, Consumer] = {}
        self._queues: dict[str, QueueSpec] = {}
        self._reach: dict[str, QueueReach] = {}
        self._draining: list[Consumer] = []

    @property
    def queues(self) -> Mapping[str, QueueSpec]:
        """The configured queues."""
        return MappingProxyType(self._queues)

    def all(self) -> list[Consumer]:
        """Return all consumers, the draining ones last."""
        return [*self._consumers.values(), *self._draining]

    async def start(self, queue: QueueSpec) -> None:
        """Start a consumer; warn if the queue cannot be used, which the next sync tries again."""
        try:
            await self._start(queue)
        except PenstockError as error:
            text = f"queue {queue.queue_name} cannot be consumed: {error}"
            self._warnings.add(WarningCode.QUEUE_VALIDATION, WarningSeverity.WARN, ROUTER, text)

    async def _start(self, queue: QueueSpec) -> None:
        for old in [each for each in self._draining if each.name == queue.queue_name]:
            if old.source.exclusive:
                # Two at once could break a group's order; the new one receives the old one's messages again.
                self._draining.remove(old)
                await old.close()
        if queue.queue_name in self._consumers:
            # A restart and a new configuration ran at the same time: one consumer is enough.
            return
        source = self._make_source(queue)
        reach = self._reach.get(queue.queue_name) or QueueReach(queue.queue_name, self.running_time, self._warnings)
        self._reach[queue.queue_name] = reach
        consumer = Consumer(source, queue.connections, self._route, self._tracker, reach, self._health_timeout_s)
        self._consumers[queue.queue_name] = consumer
        self._queues[queue.queue_name] = queue
        consumer.start()

    def retire(self, name: str) -> None:
        """Stop consuming a queue; messages already received are still settled."""
        self._reach.pop(name, None)
        self._stop(name)

    def _stop(self, name: str) -> None:
        del self._queues[name]
        # Missing if its restart failed.
        if consumer := self._consumers.pop(name, None):
            consumer.stop()
            self._draining.append(consumer)

    async def restart(self, name: str) -> bool:
        """Replace the consumer of a queue; return False if there is none, or if no new one could be started."""
        queue = self._queues.get(name)
        if queue is None:
            return False
        self._warnings.add(
            WarningCode.CONSUMER_RESTART, WarningSeverity.WARN, ROUTER, f"restarting the consumer of queue {name}"
        )
        try:
            self._stop(name)
            await self._start(queue)
        except Exception as error:
            _log.exception("cannot restart the consumer of queue %s", name)
            self._queues.setdefault(name, queue)
            self._warnings.add(
                WarningCode.CONSUMER_RESTART_FAILED,
                WarningSeverity.CRITICAL,
                ROUTER,
                f"cannot restart the consumer of queue {name}: {error}",
            )
            return False
        return True

    async def restart_unhealthy(self) -> None:
        """Replace each consumer that does not poll, and warn of the queues that are not reached."""
        self._warn_of_missing()
        for name in list(self._queues):
            consumer = self._consumers.get(name)
            if consumer is None or not consumer.is_healthy:
                if name in self._reach and self._reach[name].silent_ms >= self._health_timeout_s * SECOND_MS:
                    self._reach[name].warn()
                await self.restart(name)

    def _warn_of_missing(self) -> None:
        """Warn once of all queues that do not exist: thousands may be waiting for their first message."""
        missing = [name for name, reach in self._reach.items() if reach.is_missing]
        if missing:
            names = ", ".join(missing[:_SHOWN_NAMES])
            text = f"{len(missing)} queues do not exist yet: {names}"
            self._warnings.add(WarningCode.QUEUE_VALIDATION, WarningSeverity.WARN, ROUTER, text)

    async def close_idle(self) -> None:
        """Close the draining consumers that have nothing left to settle."""
        for consumer in [each for each in self._draining if each.is_idle]:
            self._draining.remove(consumer)
            await consumer.close()

    async def stop_all(self, wait_s: float) -> None:
        """Stop polling all queues."""
        for name in list(self._queues):
            self.retire(name)
        try:
            async with asyncio.timeout(wait_s):
                for consumer in self._draining:
                    await consumer.wait_until_stopped()
        except TimeoutError:
            _log.warning("some polls did not end within %g s", wait_s)

    @property
    def settling(self) -> int:
        """Number of settlements that the queues have not confirmed yet."""
        return sum(consumer.settlements.under_way for consumer in self.all())

    @property
    def settlement_failures(self) -> int:
        """Number of settlements that have failed so far."""
        return sum(consumer.settlements.failures for consumer in self.all())

    async def settle_all(self, wait_s: float) -> None:
        """Wait until the queues have confirmed every ack and nack."""
        try:
            async with asyncio.timeout(wait_s):
                for consumer in self._draining:
                    await consumer.settlements.wait_until_settled()
        except TimeoutError:
            _log.warning("the queues did not confirm all settlements within %g s", wait_s)

    async def close_all(self, wait_s: float) -> None:
        """Close all consumers."""
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.gather(*(consumer.close() for consumer in self._draining))
        except TimeoutError:
            _log.warning("some consumers did not close within %g s", wait_s)
        self._draining.clear()

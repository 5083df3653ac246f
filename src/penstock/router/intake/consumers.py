"""All consumers of a router: started, replaced when they stall, retired, and left in good order at the end."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

from penstock.domain.errors import PenstockError
from penstock.edge.clock import Clock
from penstock.queues import QueueSpec, Source
from penstock.router.intake.consumer import Consumer, Route
from penstock.router.intake.tracker import InFlightTracker
from penstock.router.monitoring.warnings import ROUTER, WarningCode, Warnings, WarningSeverity

_log = logging.getLogger(__name__)


class Consumers:
    """Consumers by the name of their queue, and those that only settle what they had taken."""

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
        self._clock = clock
        self._warnings = warnings
        self._health_timeout_s = health_timeout_s
        self._consumers: dict[str, Consumer] = {}
        self._queues: dict[str, QueueSpec] = {}
        self._draining: list[Consumer] = []

    @property
    def queues(self) -> Mapping[str, QueueSpec]:
        """The queues that are wanted."""
        return MappingProxyType(self._queues)

    def all(self) -> list[Consumer]:
        """Those that are no longer wanted last."""
        return [*self._consumers.values(), *self._draining]

    async def start(self, queue: QueueSpec) -> None:
        """Start a consumer; a queue that cannot be used leaves the others alone, and is tried at the next sync."""
        try:
            await self._start(queue)
        except PenstockError as error:
            text = f"queue {queue.queue_name} cannot be consumed: {error}"
            self._warnings.add(WarningCode.QUEUE_VALIDATION, WarningSeverity.WARN, ROUTER, text)

    async def _start(self, queue: QueueSpec) -> None:
        for old in [each for each in self._draining if each.name == queue.queue_name]:
            if old.source.exclusive:
                # Two at once could put a group out of order; what the old one had comes again to the new one.
                self._draining.remove(old)
                await old.close()
        if queue.queue_name in self._consumers:
            # A restart and a new configuration have met: one consumer is enough.
            return
        consumer = Consumer(
            self._make_source(queue),
            queue.connections,
            self._route,
            self._tracker,
            self._clock,
            self._health_timeout_s,
        )
        self._consumers[queue.queue_name] = consumer
        self._queues[queue.queue_name] = queue
        consumer.start()

    def retire(self, name: str) -> None:
        """Consume a queue no longer; what was taken of it is still settled."""
        del self._queues[name]
        # There is none if it could not be restarted.
        if consumer := self._consumers.pop(name, None):
            consumer.stop()
            self._draining.append(consumer)

    async def restart(self, name: str) -> bool:
        """Put a new consumer in the place of one; False if there is none, or no new one could be made."""
        queue = self._queues.get(name)
        if queue is None:
            return False
        self._warnings.add(
            WarningCode.CONSUMER_RESTART, WarningSeverity.WARN, ROUTER, f"the consumer of queue {name} is restarted"
        )
        try:
            self.retire(name)
            await self._start(queue)
        except Exception as error:
            _log.exception("the consumer of queue %s could not be restarted", name)
            self._queues.setdefault(name, queue)
            self._warnings.add(
                WarningCode.CONSUMER_RESTART_FAILED,
                WarningSeverity.CRITICAL,
                ROUTER,
                f"the consumer of queue {name} could not be restarted: {error}",
            )
            return False
        return True

    async def restart_unhealthy(self) -> None:
        """Put a new consumer in the place of each that does not poll."""
        for name in list(self._queues):
            consumer = self._consumers.get(name)
            if consumer is None or not consumer.is_healthy:
                await self.restart(name)

    async def close_idle(self) -> None:
        """Hang up where nothing is left to settle."""
        for consumer in [each for each in self._draining if each.is_idle]:
            self._draining.remove(consumer)
            await consumer.close()

    async def stop_all(self, wait_s: float) -> None:
        """Poll nothing any more."""
        for name in list(self._queues):
            self.retire(name)
        try:
            async with asyncio.timeout(wait_s):
                for consumer in self._draining:
                    await consumer.stopped_polling()
        except TimeoutError:
            _log.warning("some polls did not end within %g s", wait_s)

    @property
    def settlement_failures(self) -> int:
        """How many settlements have failed so far."""
        return sum(consumer.settlements.failures for consumer in self.all())

    async def settle_all(self, wait_s: float) -> None:
        """Wait until the queues have confirmed what was acked and given back."""
        try:
            async with asyncio.timeout(wait_s):
                for consumer in self._draining:
                    await consumer.settlements.all_ended()
        except TimeoutError:
            _log.warning("the queues did not confirm all settlements within %g s", wait_s)

    async def close_all(self, wait_s: float) -> None:
        """Hang up everywhere."""
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.gather(*(consumer.close() for consumer in self._draining))
        except TimeoutError:
            _log.warning("some queues were not left within %g s", wait_s)
        self._draining.clear()

"""Who makes the jobs of published events: the one place where that is chosen.

Fan-out apart from publishing: events are kept, and the pipeline makes their jobs.

The subscriptions as they are now, read once for all events that are published at the same time.

Inline fan-out: events and the jobs they cause are kept together, in one transaction.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from penstock.domain.event import StoredEvent
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock
from penstock.events.fan_out.rule import FanOut
from penstock.events.store import JobRepository
from penstock.ops.config import FanOutBy


class LaterPublisher:
    """Keeps events for `penstock pipeline fan-out`, which finds them by itself."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    async def publish(self, events: Sequence[StoredEvent]) -> list[str]:
        """Keep events; the id of each, or of the same event told before, which causes nothing."""
        return await self._repository.add_events(events)


class LatestFanOut:
    """Knows all subscriptions that were made before it is asked; another node may have made them."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository
        self._known: list[Subscription] = []
        self._fan_out = FanOut(())
        self._under_way: asyncio.Task[FanOut] | None = None
        self._next: asyncio.Task[FanOut] | None = None

    async def current(self) -> FanOut:
        """As of a moment after this call."""
        # A read that is under way may have missed what was made just now: all who come meanwhile share the next one.
        if self._next is None:
            self._next = asyncio.create_task(self._read(self._under_way), name="read subscriptions")
        # One caller that goes away must not take the read from the others.
        return await asyncio.shield(self._next)

    async def _read(self, before: "asyncio.Task[FanOut] | None") -> FanOut:
        if before is not None:
            await asyncio.wait((before,))
        self._under_way, self._next = self._next, None
        subscriptions = await self._repository.list_subscriptions()
        if subscriptions != self._known:
            self._known, self._fan_out = subscriptions, FanOut(subscriptions)
        return self._fan_out


class InlinePublisher:
    """Publishes events to the subscriptions there are at that moment."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._latest = LatestFanOut(repository)
        self._clock = clock

    async def publish(self, events: Sequence[StoredEvent]) -> list[str]:
        """Keep events with their jobs; the id of each, or of the same event told before, which causes nothing."""
        fan_out = await self._latest.current()
        jobs = [job for event in events for job in fan_out.jobs(event)]
        return await self._repository.publish(events, jobs, self._clock.now_ms())


class EventPublisher(Protocol):
    """Takes events that somebody publishes."""

    async def publish(self, events: Sequence[StoredEvent]) -> list[str]:
        """Keep events, and answer after the commit; the id of each, or of the same event told before."""
        ...


def publisher_for(fan_out: FanOutBy, repository: JobRepository, clock: Clock) -> EventPublisher:
    """The publisher that leaves the jobs to who is to make them."""
    return LaterPublisher(repository) if fan_out is FanOutBy.PIPELINE else InlinePublisher(repository, clock)

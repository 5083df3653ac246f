"""Publishes events: with their jobs in one transaction, or alone when the pipeline creates the jobs."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from penstock.domain.event import StoredEvent
from penstock.edge.clock import Clock
from penstock.events.fan_out.rule import FanOut
from penstock.events.store import JobRepository
from penstock.ops.config import FanOutBy


class EventPublisher(Protocol):
    """Accepts published events."""

    async def publish(self, events: Sequence[StoredEvent]) -> list[str]:
        """Store events and return after the commit the id of each, or of an earlier copy of the same event."""
        ...


def publisher_for(fan_out: FanOutBy, repository: JobRepository, clock: Clock) -> EventPublisher:
    """Return the publisher for the engine that creates jobs."""
    return StoringPublisher(repository) if fan_out is FanOutBy.PIPELINE else InlinePublisher(repository, clock)


class InlinePublisher:
    """Publishes events to the subscriptions that exist at that moment."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._latest = CurrentFanOut(repository)
        self._clock = clock

    async def publish(self, events: Sequence[StoredEvent]) -> list[str]:
        """Store events with their jobs; return the id of each, or of an earlier copy, which causes no jobs."""
        fan_out = await self._latest.current()
        jobs = [job for event in events for job in fan_out.jobs(event)]
        return await self._repository.publish(events, jobs, self._clock.now_ms())


class CurrentFanOut:
    """Asks for changed subscriptions, once for all events that are published at the same time."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository
        self._changes = -1
        self._fan_out = FanOut(())
        self._in_progress: asyncio.Task[FanOut] | None = None
        self._next: asyncio.Task[FanOut] | None = None

    async def current(self) -> FanOut:
        """Return the subscriptions as of a moment after this call, including those that other nodes created."""
        # A read in progress may miss a subscription created just now, so all later callers share the next read.
        if self._next is None:
            self._next = asyncio.create_task(self._read(self._in_progress), name="read subscriptions")
        # A caller that is cancelled must not cancel the read for the others.
        return await asyncio.shield(self._next)

    async def _read(self, before: "asyncio.Task[FanOut] | None") -> FanOut:
        if before is not None:
            await asyncio.wait((before,))
        self._in_progress, self._next = self._next, None
        changed = await self._repository.changed_subscriptions(self._changes)
        if changed is not None:
            self._changes, self._fan_out = changed.changes, FanOut(changed.subscriptions)
        return self._fan_out


class StoringPublisher:
    """Stores events for `penstock pipeline fan-out`, which creates their jobs."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    async def publish(self, events: Sequence[StoredEvent]) -> list[str]:
        """Store events; return the id of each, or of an earlier copy, which causes no jobs."""
        return await self._repository.add_events(events)

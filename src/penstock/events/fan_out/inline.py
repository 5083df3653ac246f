"""Publishes events: with their jobs in one transaction, or alone when the pipeline creates the jobs."""

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import msgspec

from penstock.domain.event import StoredEvent
from penstock.edge.clock import Clock
from penstock.events.fan_out.rule import FanOut
from penstock.events.store import JobRepository
from penstock.ops.config import FanOutBy


class Published(msgspec.Struct, frozen=True):
    """The id of a stored event, or of an earlier copy of it, and how many subscriptions match it now."""

    id: str
    subscriptions: int


class EventPublisher(Protocol):
    """Accepts published events."""

    async def publish(self, events: Sequence[StoredEvent]) -> list[Published]:
        """Store events and return after the commit what became of each."""
        ...


def publisher_for(fan_out: FanOutBy, repository: JobRepository, clock: Clock) -> EventPublisher:
    """Return the publisher for the engine that creates jobs."""
    latest = CurrentFanOut(repository)
    if fan_out is FanOutBy.PIPELINE:
        return StoringPublisher(repository, latest)
    return InlinePublisher(repository, latest, clock)


class InlinePublisher:
    """Publishes events to the subscriptions that exist at that moment."""

    def __init__(self, repository: JobRepository, latest: "CurrentFanOut", clock: Clock) -> None:
        self._repository = repository
        self._latest = latest
        self._clock = clock

    async def publish(self, events: Sequence[StoredEvent]) -> list[Published]:
        """Store events with their jobs; an earlier copy causes no jobs."""
        fan_out = await self._latest.current()
        jobs = [fan_out.jobs(event) for event in events]
        ids = await self._repository.publish(events, list(chain.from_iterable(jobs)), self._clock.now_ms())
        return [Published(kept, len(each)) for kept, each in zip(ids, jobs, strict=True)]


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

    def __init__(self, repository: JobRepository, latest: CurrentFanOut) -> None:
        self._repository = repository
        self._latest = latest

    async def publish(self, events: Sequence[StoredEvent]) -> list[Published]:
        """Store events, and count the subscriptions that match them now; those of the fan-out's moment get them."""
        fan_out = await self._latest.current()
        ids = await self._repository.add_events(events)
        return [Published(kept, len(fan_out.wanting(event))) for kept, event in zip(ids, events, strict=True)]

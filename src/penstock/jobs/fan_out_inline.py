"""Inline fan-out: events and the jobs they cause are kept together, in one transaction."""

from collections.abc import Sequence

from penstock.domain.event import Event
from penstock.edge.clock import Clock
from penstock.jobs.fan_out_latest import LatestFanOut
from penstock.jobs.repository import JobRepository


class InlinePublisher:
    """Publishes events to the subscriptions there are at that moment."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._latest = LatestFanOut(repository)
        self._clock = clock

    async def publish(self, events: Sequence[Event]) -> list[str]:
        """Keep events with their jobs; the id of each, or of the same event told before, which causes nothing."""
        fan_out = await self._latest.current()
        jobs = [job for event in events for job in fan_out.jobs(event)]
        return await self._repository.publish(events, jobs, self._clock.now_ms())

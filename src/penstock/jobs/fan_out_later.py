"""Fan-out apart from publishing: events are kept, and the pipeline makes their jobs."""

from collections.abc import Sequence

from penstock.domain.event import Event
from penstock.jobs.repository import JobRepository


class LaterPublisher:
    """Keeps events for `penstock pipeline fan-out`, which finds them by itself."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    async def publish(self, events: Sequence[Event]) -> list[str]:
        """Keep events; the id of each, or of the same event told before, which causes nothing."""
        return await self._repository.add_events(events)

"""The change log of the API: the database, beside the things that were changed, and a line in the log."""

from collections.abc import Callable

from penstock.edge.clock import Clock
from penstock.http.api.changes import Change, LoggedChanges
from penstock.jobs.kept_changes import KeptChange
from penstock.jobs.repository import JobRepository


class DatabaseChanges:
    """Keeps changes in the job repository."""

    def __init__(self, repository: JobRepository, new_id: Callable[[], str], clock: Clock) -> None:
        self._repository = repository
        self._new_id = new_id
        self._clock = clock
        self._logged = LoggedChanges()

    async def record(self, change: Change) -> None:
        """Keep one change."""
        await self._logged.record(change)
        await self._repository.keep_change(KeptChange(id=self._new_id(), at_ms=self._clock.now_ms(), change=change))

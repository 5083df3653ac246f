"""`/api/v1/changes`: the log of changes made through the API, which the database and the process's log record."""

from collections.abc import Callable

from penstock.client.types import ChangeList, ChangeQuery, ChangeView
from penstock.edge.clock import Clock
from penstock.events.fields import moment_of
from penstock.events.store import JobRepository, KeptChange
from penstock.http.api import Call, LoggedChanges, NoBody, route
from penstock.http.change import Change

PATH = "/api/v1/changes"


class ChangeRoutes:
    """The route of the change log."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    @route("GET", PATH, summary="List the changes made through this API, the newest first.")
    async def _list(self, call: Call[ChangeQuery, NoBody]) -> ChangeList:
        page = await self._repository.list_changes(call.query.cursor, call.query.limit)
        return ChangeList([_view(kept) for kept in page.changes], page.cursor)


def _view(kept: KeptChange) -> ChangeView:
    change = kept.change
    return ChangeView(
        kept.id, moment_of(kept.at_ms), change.who, change.role, change.action, change.target, change.detail
    )


class DatabaseChanges:
    """Stores changes in the job repository."""

    def __init__(self, repository: JobRepository, new_id: Callable[[], str], clock: Clock) -> None:
        self._repository = repository
        self._new_id = new_id
        self._clock = clock
        self._logged = LoggedChanges()

    async def record(self, change: Change) -> None:
        """Store one change."""
        await self._logged.record(change)
        await self._repository.keep_change(KeptChange(id=self._new_id(), at_ms=self._clock.now_ms(), change=change))

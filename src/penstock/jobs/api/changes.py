"""`/api/v1/changes`: what people changed, and who they were."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.http.api.paging import Cursor, Limit
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route
from penstock.jobs.api.fields import moment_of
from penstock.jobs.kept_changes import KeptChange
from penstock.jobs.repository import JobRepository

PATH = "/api/v1/changes"


class ChangeQuery(msgspec.Struct, frozen=True):
    """How many changes, and where to go on."""

    limit: Limit = 100
    cursor: Cursor | None = None


class ChangeView(msgspec.Struct, frozen=True):
    """One change: `action` is the operation, `target` the variable parts of its path, `detail` its body."""

    id: str
    at: datetime
    who: str
    role: str
    action: str
    target: Mapping[str, str]
    detail: str


class ChangeList(msgspec.Struct, frozen=True):
    """Changes, the newest first; the cursor asks for the next page, null after the last."""

    changes: list[ChangeView]
    cursor: str | None


class ChangeRoutes:
    """The route that shows changes."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="GET",
                path=PATH,
                summary="What people changed through this API, the newest first.",
                answer=ChangeList,
                query=ChangeQuery,
                handler=self._list,
            ),
        )

    async def _list(self, call: Call[ChangeQuery, NoBody]) -> ChangeList:
        page = await self._repository.list_changes(call.query.cursor, call.query.limit)
        return ChangeList([_view(kept) for kept in page.changes], page.cursor)


def _view(kept: KeptChange) -> ChangeView:
    change = kept.change
    return ChangeView(
        kept.id, moment_of(kept.at_ms), change.who, change.role, change.action, change.target, change.detail
    )

"""`/warnings`: list, acknowledge and remove warnings."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.client.types import Cursor, Limit
from penstock.domain.errors import NotFound
from penstock.domain.limits import SECOND_MS
from penstock.http.api import Call, NoBody, NoQuery, route, whole_or_page_of
from penstock.router.monitoring.warnings import RouterWarning, WarningCode, WarningFilter, Warnings, WarningSeverity


class WarningQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Filter and page of warnings; `since` is in milliseconds since the Unix epoch."""

    severity: WarningSeverity | None = None
    code: WarningCode | None = None
    source: str | None = None
    acknowledged: bool | None = None
    since: Annotated[int, Meta(ge=0)] | None = None
    limit: Limit | None = None
    cursor: Cursor | None = None


class WarningList(msgspec.Struct, frozen=True):
    """Warnings, and the number of unacknowledged ones by severity; `cursor` requests the next page, null on the last.

    The whole list is sorted by last occurrence, newest first. Pages are sorted by first occurrence, newest first, as a
    warning that repeats would otherwise move between pages.
    """

    warnings: list[RouterWarning]
    unacknowledged: dict[WarningSeverity, int]
    cursor: str | None


class OlderQuery(msgspec.Struct, frozen=True, rename="camel"):
    """The age of the warnings to remove, since their last occurrence."""

    older_than_s: Annotated[int, Meta(ge=0)]


class WarningCount(msgspec.Struct, frozen=True):
    """Number of warnings that were changed or removed."""

    count: int


class WarningRoutes:
    """The routes of warnings."""

    def __init__(self, warnings: Warnings) -> None:
        self._warnings = warnings

    @route("GET", "/warnings", summary="List warnings, newest first.")
    def _list(self, call: Call[WarningQuery, NoBody]) -> WarningList:
        query = call.query
        wanted = WarningFilter(query.severity, query.code, query.source, query.acknowledged, query.since)
        page, cursor = whole_or_page_of(
            self._warnings.listed(wanted), lambda each: (-each.number,), tuple[int], query.limit, query.cursor
        )
        return WarningList(page, self._warnings.counts(), cursor)

    @route("DELETE", "/warnings", summary="Remove warnings that have not occurred for some time.")
    def _remove(self, call: Call[OlderQuery, NoBody]) -> WarningCount:
        return WarningCount(self._warnings.remove_older(call.query.older_than_s * SECOND_MS))

    @route("POST", "/warnings/acknowledge-all", summary="Acknowledge all warnings.")
    def _acknowledge_all(self, _: Call[NoQuery, NoBody]) -> WarningCount:
        return WarningCount(self._warnings.acknowledge_all())

    @route("POST", "/warnings/{id}/acknowledge", summary="Acknowledge a warning.")
    def _acknowledge(self, call: Call[NoQuery, NoBody]) -> RouterWarning:
        found = self._warnings.acknowledge(call.path["id"])
        if found is None:
            raise NotFound(f"there is no warning {call.path['id']!r}; it may have expired")
        return found

"""`/warnings`: reading, acknowledging and removing them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.client.types import Cursor, Limit
from penstock.domain.errors import NotFound
from penstock.domain.limits import SECOND_MS
from penstock.http.api import Call, NoBody, NoQuery, route, whole_or_page_of
from penstock.router.monitoring.warnings import RouterWarning, WarningCode, WarningFilter, Warnings, WarningSeverity


class WarningQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Which warnings to show; `since` is in milliseconds since the Unix epoch."""

    severity: WarningSeverity | None = None
    code: WarningCode | None = None
    source: str | None = None
    acknowledged: bool | None = None
    since: Annotated[int, Meta(ge=0)] | None = None
    limit: Limit | None = None
    cursor: Cursor | None = None


class WarningList(msgspec.Struct, frozen=True):
    """Warnings, and how many of all are not acknowledged; the cursor asks for the next page, null after the last.

    A list comes in the order of their last times, newest first; pages in the order in which they first came, newest
    first, as one that repeats would change its place.
    """

    warnings: list[RouterWarning]
    unacknowledged: dict[WarningSeverity, int]
    cursor: str | None


class OlderQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Which warnings to remove, by the time since they last came."""

    older_than_s: Annotated[int, Meta(ge=0)]


class WarningCount(msgspec.Struct, frozen=True):
    """How many warnings it was done to."""

    count: int


class WarningRoutes:
    """The routes of warnings."""

    def __init__(self, warnings: Warnings) -> None:
        self._warnings = warnings

    @route("GET", "/warnings", summary="Warnings, newest first.")
    def _list(self, call: Call[WarningQuery, NoBody]) -> WarningList:
        asked = call.query
        wanted = WarningFilter(asked.severity, asked.code, asked.source, asked.acknowledged, asked.since)
        page, cursor = whole_or_page_of(
            self._warnings.listed(wanted), lambda each: (-each.number,), tuple[int], asked.limit, asked.cursor
        )
        return WarningList(page, self._warnings.counts(), cursor)

    @route("DELETE", "/warnings", summary="Remove warnings that have not come for a while.")
    def _remove(self, call: Call[OlderQuery, NoBody]) -> WarningCount:
        return WarningCount(self._warnings.remove_older(call.query.older_than_s * SECOND_MS))

    @route("POST", "/warnings/acknowledge-all", summary="Mark all warnings as seen.")
    def _acknowledge_all(self, _: Call[NoQuery, NoBody]) -> WarningCount:
        return WarningCount(self._warnings.acknowledge_all())

    @route("POST", "/warnings/{id}/acknowledge", summary="Mark a warning as seen.")
    def _acknowledge(self, call: Call[NoQuery, NoBody]) -> RouterWarning:
        found = self._warnings.acknowledge(call.path["id"])
        if found is None:
            raise NotFound(f"there is no warning {call.path['id']!r}; it may have expired")
        return found

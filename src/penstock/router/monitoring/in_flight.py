"""`/monitoring/in-flight-messages`: what is on its way right now."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.client.types import Cursor, Limit
from penstock.domain.errors import NotFound
from penstock.http.api import Call, NoBody, NoQuery, cursor_after, key_before, route
from penstock.http.auth import MAY_LOOK
from penstock.ops.telemetry import mask_whole_url
from penstock.router.monitoring.views import InFlightFilter, InFlightView, RouterSurface

MAX_CHECKED = 1_000
_PATH = "/monitoring/in-flight-messages"


class InFlightQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Which messages to show."""

    limit: Limit = 100
    message_id: str | None = None
    pool: str | None = None
    queue: str | None = None
    cursor: Cursor | None = None


class InFlightList(msgspec.Struct, frozen=True):
    """Messages on their way, the oldest first; the cursor asks for the next page, null after the last."""

    messages: list[InFlightView]
    cursor: str | None


class CheckQuery(msgspec.Struct, frozen=True, rename="camel"):
    """The message to look for."""

    message_id: Annotated[str, Meta(min_length=1)]


class CheckBatch(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The messages to look for."""

    message_ids: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=MAX_CHECKED)]


class Presence(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a message is on its way."""

    message_id: str
    in_flight: bool


class PresenceList(msgspec.Struct, frozen=True):
    """Whether messages are on their way, in the order they were asked for."""

    messages: list[Presence]


class InFlightRoutes:
    """The routes of the in-flight tracker."""

    def __init__(self, router: RouterSurface) -> None:
        self._router = router

    @route("GET", _PATH, summary="Messages on their way, the oldest first.")
    def _list(self, call: Call[InFlightQuery, NoBody]) -> InFlightList:
        asked = call.query
        page = self._router.in_flight(
            asked.limit,
            InFlightFilter(asked.message_id, asked.pool, asked.queue),
            None if asked.cursor is None else key_before(asked.cursor, tuple[float, str]),
        )
        cursor = None if page.last is None else cursor_after(page.last)
        return InFlightList([_without_secrets(message) for message in page.messages], cursor)

    @route("GET", f"{_PATH}/check", summary="Whether a message is on its way, by its own id or the broker's.")
    def _check(self, call: Call[CheckQuery, NoBody]) -> Presence:
        return self._presence(call.query.message_id)

    @route("POST", f"{_PATH}/check-batch", summary="Whether each of several messages is on its way.", roles=MAY_LOOK)
    def _check_batch(self, call: Call[NoQuery, CheckBatch]) -> PresenceList:
        return PresenceList([self._presence(message_id) for message_id in call.body.message_ids])

    @route("GET", f"{_PATH}/{{id}}", summary="A message on its way, by its own id or the broker's.")
    def _detail(self, call: Call[NoQuery, NoBody]) -> InFlightView:
        found = self._router.find(call.path["id"])
        if found is None:
            raise NotFound(f"no message {call.path['id']!r} is on its way")
        return _without_secrets(found)

    def _presence(self, message_id: str) -> Presence:
        return Presence(message_id, self._router.find(message_id) is not None)


def _without_secrets(message: InFlightView) -> InFlightView:
    return msgspec.structs.replace(message, mediation_target=mask_whole_url(message.mediation_target))

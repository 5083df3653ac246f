"""`/monitoring/in-flight-messages`: the messages in flight."""

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
    """Filter and page of messages in flight."""

    limit: Limit = 100
    message_id: str | None = None
    pool: str | None = None
    queue: str | None = None
    cursor: Cursor | None = None


class InFlightList(msgspec.Struct, frozen=True):
    """Messages in flight, the oldest first; `cursor` requests the next page, null on the last."""

    messages: list[InFlightView]
    cursor: str | None


class CheckQuery(msgspec.Struct, frozen=True, rename="camel"):
    """The id of a message."""

    message_id: Annotated[str, Meta(min_length=1)]


class CheckBatch(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The ids of messages."""

    message_ids: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=MAX_CHECKED)]


class Presence(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a message is in flight."""

    message_id: str
    in_flight: bool


class PresenceList(msgspec.Struct, frozen=True):
    """Whether messages are in flight, in the order of the request."""

    messages: list[Presence]


class InFlightRoutes:
    """The routes of messages in flight."""

    def __init__(self, router: RouterSurface) -> None:
        self._router = router

    @route("GET", _PATH, summary="List the messages in flight, the oldest first.")
    def _list(self, call: Call[InFlightQuery, NoBody]) -> InFlightList:
        query = call.query
        page = self._router.in_flight(
            query.limit,
            InFlightFilter(query.message_id, query.pool, query.queue),
            None if query.cursor is None else key_before(query.cursor, tuple[float, str]),
        )
        cursor = None if page.last is None else cursor_after(page.last)
        return InFlightList([_without_secrets(message) for message in page.messages], cursor)

    @route("GET", f"{_PATH}/check", summary="Check whether a message is in flight, by its own id or the broker's.")
    def _check(self, call: Call[CheckQuery, NoBody]) -> Presence:
        return self._presence(call.query.message_id)

    @route(
        "POST", f"{_PATH}/check-batch", summary="Check whether each of several messages is in flight.", roles=MAY_LOOK
    )
    def _check_batch(self, call: Call[NoQuery, CheckBatch]) -> PresenceList:
        return PresenceList([self._presence(message_id) for message_id in call.body.message_ids])

    @route("GET", f"{_PATH}/{{id}}", summary="Show a message in flight, by its own id or the broker's.")
    def _detail(self, call: Call[NoQuery, NoBody]) -> InFlightView:
        found = self._router.find(call.path["id"])
        if found is None:
            raise NotFound(f"no message {call.path['id']!r} is in flight")
        return _without_secrets(found)

    def _presence(self, message_id: str) -> Presence:
        return Presence(message_id, self._router.find(message_id) is not None)


def _without_secrets(message: InFlightView) -> InFlightView:
    return msgspec.structs.replace(message, mediation_target=mask_whole_url(message.mediation_target))

"""`/api/queues/…`: the queues of the SQS server: look, peek, purge, redrive."""

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.api.errors import PartUnreachable
from penstock.api.gateway import Gateway
from penstock.api.upstream import Upstream
from penstock.sqs.admin import MAX_PEEK, RedriveOrder
from penstock.sqs.client import PeekedPage
from penstock.telemetry.paging import WholeOrPageQuery, whole_or_page_of
from penstock.telemetry.routes import AnyRoute, Call, NoBody, Route

PREFIX = "/api/queues"
_UPSTREAM_PREFIX = "/admin/queues"


class PeekQuery(msgspec.Struct, frozen=True):
    """Which messages to show: the first ones, or those after a cursor."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PEEK)] = 10
    cursor: str | None = None


class QueueSummary(msgspec.Struct, frozen=True):
    """A queue at this moment."""

    name: str
    fifo: bool
    partitions: int
    visible: int
    not_visible: int
    delayed: int
    waiting_receivers: int


class QueueSummaries(msgspec.Struct, frozen=True):
    """Queues, by name; the cursor asks for the next page, null after the last."""

    queues: list[QueueSummary]
    cursor: str | None = None


class QueueDescription(QueueSummary, frozen=True):
    """A queue with all there is to say about it."""

    arn: str
    attributes: dict[str, str]
    tags: dict[str, str]
    dead_letter_sources: list[str]
    move_tasks: list[dict[str, Any]]
    partition_messages: list[int]
    throttle_tokens: dict[str, float]


class Purged(msgspec.Struct, frozen=True):
    """The queue that is empty now."""

    purged: str


class RedriveStarted(msgspec.Struct, frozen=True):
    """The task that moves dead letters back."""

    task: str


def queue_routes(upstream: Upstream) -> tuple[AnyRoute, ...]:
    """What gets through to the SQS server."""
    to = Gateway(upstream, PREFIX, _UPSTREAM_PREFIX).route
    return (
        _list_route(upstream),
        to("GET", "/{name}", "One queue, with attributes, partitions and throttle tokens.", QueueDescription),
        to("GET", "/{name}/messages", "Messages of a queue; nothing is received.", PeekedPage, query=PeekQuery),
        to("POST", "/{name}/purge", "Delete all messages of a queue.", Purged),
        to(
            "POST",
            "/{name}/redrive",
            "Move dead letters back to where they came from.",
            RedriveStarted,
            body=RedriveOrder,
        ),
    )


def _list_route(upstream: Upstream) -> AnyRoute:
    """The server tells all its queues at once; who asks for a page gets one here."""

    async def listed(call: Call[WholeOrPageQuery, NoBody]) -> QueueSummaries:
        content = await upstream.ask("GET", _UPSTREAM_PREFIX)
        try:
            queues = msgspec.json.decode(content, type=QueueSummaries).queues
        except msgspec.DecodeError:
            reason = "its answer is not a list of queues"
            raise PartUnreachable(upstream.part, upstream.url, reason, upstream.setting) from None
        asked = call.query
        return QueueSummaries(
            *whole_or_page_of(queues, lambda queue: (queue.name,), tuple[str], asked.limit, asked.cursor)
        )

    return Route(
        method="GET",
        path=PREFIX,
        summary="The queues of the SQS server, by name.",
        answer=QueueSummaries,
        query=WholeOrPageQuery,
        handler=listed,
        refusals=(HTTPStatus.SERVICE_UNAVAILABLE,),
    )

"""`/api/queues/…`: the queues of the SQS server: look, peek, purge, redrive."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.api.gateway import Gateway
from penstock.api.upstream import Upstream
from penstock.sqs.admin import MAX_PEEK, RedriveOrder
from penstock.sqs.client import PeekedPage
from penstock.telemetry.routes import AnyRoute

PREFIX = "/api/queues"


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
    """All queues, by name."""

    queues: list[QueueSummary]


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
    to = Gateway(upstream, PREFIX, "/admin/queues").route
    return (
        to("GET", "", "All queues of the SQS server.", QueueSummaries),
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

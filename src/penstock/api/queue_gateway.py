"""`/api/queues/…`: the queues of the SQS server: look, peek, purge, redrive."""

from penstock.api.gateway import Gateway
from penstock.api.upstream import Upstream
from penstock.sqs.admin import PREFIX as UPSTREAM_PREFIX
from penstock.sqs.admin_shapes import (
    PeekedPage,
    PeekQuery,
    Purged,
    QueueDescription,
    QueueSummaries,
    RedriveOrder,
    RedriveStarted,
)
from penstock.telemetry.paging import WholeOrPageQuery
from penstock.telemetry.routes import AnyRoute

PREFIX = "/api/queues"


def queue_routes(upstream: Upstream) -> tuple[AnyRoute, ...]:
    """What gets through to the SQS server."""
    to = Gateway(upstream, PREFIX, UPSTREAM_PREFIX).route
    return (
        to("GET", "", "The queues of the SQS server, by name.", QueueSummaries, query=WholeOrPageQuery),
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

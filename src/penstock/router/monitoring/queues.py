"""`/monitoring/queues` and `/monitoring/consumer-health`: the consumed queues, and the health of their consumers."""

from http import HTTPStatus

import msgspec

from penstock.client.types import WholeOrPageQuery
from penstock.domain.errors import NotFound, Unavailable
from penstock.http.api import Call, NoBody, NoQuery, route, whole_or_page_of
from penstock.ops.telemetry import mask_whole_url
from penstock.router.monitoring.views import QueueView, RouterSurface


class QueueList(msgspec.Struct, frozen=True):
    """Consumed queues; `cursor` requests the next page, null on the last."""

    queues: list[QueueView]
    cursor: str | None


class ConsumerHealth(msgspec.Struct, frozen=True, rename="camel"):
    """Whether the consumer of a queue polls."""

    queue: str
    healthy: bool
    paused: bool
    draining: bool
    last_poll_age_s: float | None


class ConsumerHealthList(msgspec.Struct, frozen=True):
    """Consumers, and whether every one that should poll does; `cursor` requests the next page, null on the last."""

    healthy: bool
    consumers: list[ConsumerHealth]
    cursor: str | None


class Restarted(msgspec.Struct, frozen=True):
    """The queue whose consumer was replaced."""

    queue: str


class QueueRoutes:
    """The routes of queues and their consumers."""

    def __init__(self, router: RouterSurface) -> None:
        self._router = router

    @route("GET", "/monitoring/queues", summary="List all consumed queues with their counts.")
    def _list(self, call: Call[WholeOrPageQuery, NoBody]) -> QueueList:
        page, cursor = _page_of(self._router.queues(), call.query)
        return QueueList([_without_password(queue) for queue in page], cursor)

    @route("GET", "/monitoring/consumer-health", summary="Show whether the consumers poll.")
    def _health(self, call: Call[WholeOrPageQuery, NoBody]) -> ConsumerHealthList:
        queues = self._router.queues()
        page, cursor = _page_of(queues, call.query)
        consumers = [
            ConsumerHealth(queue.name, queue.healthy, queue.paused, queue.draining, queue.last_poll_age_s)
            for queue in page
        ]
        return ConsumerHealthList(all(queue.healthy or queue.draining for queue in queues), consumers, cursor)

    @route(
        "POST",
        "/monitoring/queues/{name}/restart",
        summary="Replace the consumer of a queue.",
        refusals=(HTTPStatus.SERVICE_UNAVAILABLE,),
    )
    async def _restart(self, call: Call[NoQuery, NoBody]) -> Restarted:
        name = call.path["name"]
        if not any(queue.name == name and not queue.draining for queue in self._router.queues()):
            raise NotFound(f"no queue {name!r} is consumed; GET /monitoring/queues lists them")
        if not await self._router.restart_consumer(name):
            raise Unavailable(f"cannot start a new consumer of queue {name!r}; GET /warnings shows the reason")
        return Restarted(name)


def _page_of(queues: list[QueueView], query: WholeOrPageQuery) -> tuple[list[QueueView], str | None]:
    return whole_or_page_of(queues, lambda queue: (queue.name,), tuple[str], query.limit, query.cursor)


def _without_password(queue: QueueView) -> QueueView:
    return msgspec.structs.replace(queue, uri=mask_whole_url(queue.uri))

"""A way through the API to another part, for pages that may ask their own origin only.

No open proxy: the part is fixed, and so is every method, path and query that gets through.

`/api/queues/…`: the queues of the SQS server: look, peek, purge, redrive.

`/api/pipeline`: how Spark's streaming queries do. That there are none is an answer too: not everybody has Spark.

Telling the router that its configuration has changed, so that it need not wait for its next sync.

`/api/router/…`: the router's monitoring, pools, breakers and warnings.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Raw

from penstock.client.types import WholeOrPageQuery
from penstock.console.errors import PartNotConfigured, PartUnreachable
from penstock.console.upstream import TIMEOUT_S, Upstream
from penstock.domain.errors import PenstockError
from penstock.http.api import AnyRoute, Call, NoBody, NoQuery, Route, route
from penstock.http.problems import Refused
from penstock.router import (
    SHRINK_WAIT_S,
    BreakerList,
    BreakerReset,
    GroupList,
    GroupQuery,
    InFlightList,
    InFlightQuery,
    Overview,
    PoolChange,
    QueueList,
    Reloaded,
    ResetCount,
    RouterPoolList,
    RouterPoolView,
    RouterWarning,
    WarningCount,
    WarningList,
    WarningQuery,
)
from penstock.sqs import ADMIN_PREFIX as UPSTREAM_PREFIX
from penstock.sqs import PeekedPage, PeekQuery, Purged, QueueDescription, QueueSummaries, RedriveRequest, RedriveStarted


class Gateway:
    """Makes the routes to one part: what is `prefix` here is `upstream_prefix` there."""

    def __init__(self, upstream: Upstream, prefix: str, upstream_prefix: str = "") -> None:
        self._upstream = upstream
        self._prefix = prefix
        self._upstream_prefix = upstream_prefix

    def route(
        self,
        method: str,
        path: str,
        summary: str,
        answer: type,
        *,
        query: type[msgspec.Struct] = NoQuery,
        body: type = NoBody,
        timeout_s: float = TIMEOUT_S,
    ) -> AnyRoute:
        """One operation that gets through; its query and body are checked here before the part sees them."""

        async def passed(call: Call[Any, Any]) -> Raw:
            target = self._upstream_prefix + _filled(path, call.path)
            content = await self._upstream.ask(method, target, _query_of(call.query), call.content, timeout_s)
            return self._json(content)

        return Route(
            method=method,
            path=self._prefix + path,
            summary=summary,
            answer=answer,
            handler=passed,
            query=query,
            body=body,
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE),
        )

    def _json(self, content: bytes) -> Raw:
        try:
            msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            upstream = self._upstream
            raise PartUnreachable(upstream.part, upstream.url, "its answer is not JSON", upstream.setting) from None
        return Raw(content)


def _filled(path: str, variables: Any) -> str:
    return path.format_map({name: quote(value, safe="") for name, value in variables.items()})


def _query_of(query: msgspec.Struct) -> str:
    given = {
        name: value for name, value in msgspec.to_builtins(query).items() if value is not None and value is not UNSET
    }
    return urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()})


QUEUE_PREFIX = "/api/queues"


def queue_routes(upstream: Upstream) -> tuple[AnyRoute, ...]:
    """What gets through to the SQS server."""
    to = Gateway(upstream, QUEUE_PREFIX, UPSTREAM_PREFIX).route
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
            body=RedriveRequest,
        ),
    )


PIPELINE_PATH = "/api/pipeline"


class PipelineState(msgspec.Struct, frozen=True, rename="camel"):
    """The streaming queries as the pipeline tells them, or why there is nothing to tell."""

    reachable: bool
    detail: str = ""
    master: str = ""
    queries: list[dict[str, Any]] = []


class _Told(msgspec.Struct):
    master: str = ""
    queries: list[dict[str, Any]] = []


class PipelineRoutes:
    """The route to the pipeline."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    @route("GET", PIPELINE_PATH, summary="The pipeline's streaming queries, or why there are none.")
    async def _state(self, _: Call[NoQuery, NoBody]) -> PipelineState:
        try:
            told = msgspec.json.decode(await self._upstream.ask("GET", PIPELINE_PATH), type=_Told)
        except (PartUnreachable, PartNotConfigured) as error:
            return PipelineState(False, error.message)
        except msgspec.DecodeError:
            return PipelineState(False, f"{self._upstream.url} is not a pipeline; set {self._upstream.setting}")
        return PipelineState(True, "", told.master, told.queries)


log = logging.getLogger(__name__)

RELOAD = "/config/reload"
RELOAD_S = SHRINK_WAIT_S + TIMEOUT_S
"""A lower concurrency waits for deliveries to end."""


class RouterNews:
    """Lets the router fetch its configuration, without keeping waiting who changed it.

    What changes while the router fetches may have come too late for it, so it is told once more.
    """

    def __init__(self, router: Upstream) -> None:
        self._router = router
        self._telling: asyncio.Task[None] | None = None
        self._is_news = False

    def tell(self) -> None:
        """The configuration has changed."""
        self._is_news = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        while self._is_news:
            self._is_news = False
            try:
                await self._router.ask("POST", RELOAD, timeout_s=RELOAD_S)
            except PartNotConfigured:
                return
            except (PenstockError, Refused) as error:
                log.warning("the router does not follow before its next sync", extra={"reason": str(error)})


ROUTER_PREFIX = "/api/router"
_BREAKERS = "/monitoring/circuit-breakers"


def router_routes(upstream: Upstream) -> tuple[AnyRoute, ...]:
    """What gets through to the router."""
    to = Gateway(upstream, ROUTER_PREFIX).route
    return (
        to("GET", "/monitoring", "The router's health and totals.", Overview),
        to("GET", "/monitoring/pools", "The router's pools.", RouterPoolList, query=WholeOrPageQuery),
        to(
            "PUT",
            "/monitoring/pools/{code}",
            "Change a pool's limits until the configuration says otherwise.",
            RouterPoolView,
            body=PoolChange,
            timeout_s=RELOAD_S,
        ),
        to("GET", "/monitoring/groups", "Groups that have messages in the router.", GroupList, query=GroupQuery),
        to(
            "GET",
            "/monitoring/queues",
            "The queues that the router consumes.",
            QueueList,
            query=WholeOrPageQuery,
        ),
        to(
            "GET",
            "/monitoring/in-flight-messages",
            "Messages that the router has in hand.",
            InFlightList,
            query=InFlightQuery,
        ),
        to("GET", _BREAKERS, "The breakers of all endpoints.", BreakerList, query=WholeOrPageQuery),
        to("POST", f"{_BREAKERS}/reset", "Close the breaker of one endpoint.", ResetCount, body=BreakerReset),
        to("POST", f"{_BREAKERS}/reset-all", "Close all breakers.", ResetCount),
        to("POST", RELOAD, "Let the router fetch its configuration now.", Reloaded, timeout_s=RELOAD_S),
        to("GET", "/warnings", "The router's warnings, newest first.", WarningList, query=WarningQuery),
        to("POST", "/warnings/acknowledge-all", "Mark all warnings as seen.", WarningCount),
        to("POST", "/warnings/{id}/acknowledge", "Mark a warning as seen.", RouterWarning),
    )

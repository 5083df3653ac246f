"""Gateways through the API to the SQS server, the router and the pipeline, since the page may call only its own origin.

This is not an open proxy: the part is fixed, and so is every method, path and query that is passed on.
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
from penstock.delivery import BreakerView
from penstock.domain.errors import PenstockError
from penstock.events.process import PATH as PROCESS_PATH
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
from penstock.sqs import (
    PeekedPage,
    PeekQuery,
    Purged,
    QueueDescription,
    QueueSummaries,
    RedriveRequest,
    RedriveStarted,
)

log = logging.getLogger(__name__)

QUEUE_PREFIX = "/api/queues"
PIPELINE_PATH = "/api/pipeline"
ROUTER_PREFIX = "/api/router"
RELOAD = "/config/reload"
# A lower concurrency takes effect when enough deliveries have finished.
RELOAD_S = SHRINK_WAIT_S + TIMEOUT_S

_BREAKERS = "/monitoring/circuit-breakers"


class Gateway:
    """Creates the routes to a part; `prefix` here becomes `upstream_prefix` there."""

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
        """Return an operation that is passed on; its query and body are checked before the part gets them."""

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


def queue_routes(upstream: Upstream) -> tuple[AnyRoute, ...]:
    """Return the operations of the SQS server that are passed on."""
    to = Gateway(upstream, QUEUE_PREFIX, UPSTREAM_PREFIX).route
    return (
        to("GET", "", "The queues of the SQS server, by name.", QueueSummaries, query=WholeOrPageQuery),
        to("GET", "/{name}", "One queue, with attributes, partitions and throttle tokens.", QueueDescription),
        to("GET", "/{name}/messages", "Messages of a queue, without receiving them.", PeekedPage, query=PeekQuery),
        to("POST", "/{name}/purge", "Delete all messages of a queue.", Purged),
        to(
            "POST",
            "/{name}/redrive",
            "Move dead letters back to where they came from.",
            RedriveStarted,
            body=RedriveRequest,
        ),
    )


def router_routes(upstream: Upstream) -> tuple[AnyRoute, ...]:
    """Return the operations of the router that are passed on."""
    to = Gateway(upstream, ROUTER_PREFIX).route
    return (
        to("GET", "/monitoring", "The router's health and totals.", Overview),
        to("GET", "/monitoring/pools", "The router's pools.", RouterPoolList, query=WholeOrPageQuery),
        to(
            "PUT",
            "/monitoring/pools/{code}",
            "Change a pool's limits until the next change of the configuration.",
            RouterPoolView,
            body=PoolChange,
            timeout_s=RELOAD_S,
        ),
        to("GET", "/monitoring/groups", "Groups with messages in the router.", GroupList, query=GroupQuery),
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
            "Messages that the router is delivering.",
            InFlightList,
            query=InFlightQuery,
        ),
        to("GET", _BREAKERS, "The breakers of all endpoints.", BreakerList, query=WholeOrPageQuery),
        to("POST", f"{_BREAKERS}/reset", "Close the breaker of one endpoint.", ResetCount, body=BreakerReset),
        to("POST", f"{_BREAKERS}/reset-all", "Close all breakers.", ResetCount),
        to("POST", RELOAD, "Reload the router's configuration now.", Reloaded, timeout_s=RELOAD_S),
        to("GET", "/warnings", "The router's warnings, newest first.", WarningList, query=WarningQuery),
        to("POST", "/warnings/acknowledge-all", "Mark all warnings as seen.", WarningCount),
        to("POST", "/warnings/{id}/acknowledge", "Mark a warning as seen.", RouterWarning),
    )


class PipelineState(msgspec.Struct, frozen=True, rename="camel"):
    """The pipeline's streaming queries, or why there are none. Not every installation has Spark."""

    reachable: bool
    detail: str = ""
    master: str = ""
    queries: list[dict[str, Any]] = []


class PipelineAnswer(msgspec.Struct):
    """What the pipeline answers."""

    master: str = ""
    queries: list[dict[str, Any]] = []


class PipelineRoutes:
    """The route to the pipeline."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    @route("GET", PIPELINE_PATH, summary="The pipeline's streaming queries, or why there are none.")
    async def _state(self, _: Call[NoQuery, NoBody]) -> PipelineState:
        try:
            answer = msgspec.json.decode(await self._upstream.ask("GET", PIPELINE_PATH), type=PipelineAnswer)
        except (PartUnreachable, PartNotConfigured) as error:
            return PipelineState(False, error.message)
        except msgspec.DecodeError:
            return PipelineState(False, f"{self._upstream.url} is not a pipeline; set {self._upstream.setting}")
        return PipelineState(True, "", answer.master, answer.queries)


class RouterBreakers:
    """The breakers of subscribers' endpoints in the router's process."""

    def __init__(self, router: Upstream) -> None:
        self._router = router

    async def views(self) -> list[BreakerView]:
        """Return the breakers; none if there is no router, or it does not answer."""
        try:
            found = msgspec.json.decode(await self._router.ask("GET", _BREAKERS), type=BreakerList)
        except (PenstockError, Refused, msgspec.DecodeError):
            return []
        # A router that delivers by HTTP has breakers of the process endpoint instead.
        return [view for view in found.circuit_breakers if not view.endpoint.endswith(PROCESS_PATH)]

    async def reset(self, endpoint: str) -> bool:
        """Close the breaker of an endpoint; return False if there is none."""
        try:
            await self._router.ask("POST", f"{_BREAKERS}/reset", body=msgspec.json.encode(BreakerReset(endpoint)))
        except (PenstockError, Refused):
            return False
        return True


class RouterReload:
    """Asks the router to reload its configuration, without making the caller wait.

    A change during a reload may be too late for it, so the router is asked once more.
    """

    def __init__(self, router: Upstream) -> None:
        self._router = router
        self._task: asyncio.Task[None] | None = None
        self._is_due = False

    def request(self) -> None:
        """Request a reload, because the configuration has changed."""
        self._is_due = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                await self._router.ask("POST", RELOAD, timeout_s=RELOAD_S)
            except PartNotConfigured:
                return
            except (PenstockError, Refused) as error:
                log.warning("the router reloads only at its next sync", extra={"reason": str(error)})


def _filled(path: str, variables: Any) -> str:
    return path.format_map({name: quote(value, safe="") for name, value in variables.items()})


def _query_of(query: msgspec.Struct) -> str:
    given = {
        name: value for name, value in msgspec.to_builtins(query).items() if value is not None and value is not UNSET
    }
    return urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()})

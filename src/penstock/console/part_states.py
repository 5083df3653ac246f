"""How the router, the SQS server and the pipeline are, for the verdict on everything (HEALTH-2)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from penstock.client.types import ClusterView, HealthCode, HealthReason, HealthStatus, PartHealth
from penstock.console.errors import PartNotConfigured
from penstock.console.gateways import PIPELINE_PATH, PipelineAnswer, RouterBreakers
from penstock.console.upstream import Upstream
from penstock.delivery import BreakerView
from penstock.domain.errors import PenstockError
from penstock.events.api import PartStates
from penstock.http.problems import Refused
from penstock.ops.telemetry import mask_whole_url
from penstock.router import Overview, QueueList, RouterPoolList

LATE_S = 60.0
MOST_ROWS = 10_000
"""More rows than this that wait for a streaming query are a reason to look."""

_FAILING = ("WAITING", "FAILED")


_Found = tuple[list[HealthReason], Iterable[BreakerView], int | None]
_Read = Callable[[], Awaitable[_Found]]


class OtherParts:
    """Asks the parts that the page knows; a part without an address is left out."""

    def __init__(self, router: Upstream, queues: Upstream, pipeline: Upstream | None) -> None:
        self._router = router
        self._queues = queues
        self._pipeline = pipeline or Upstream(part="pipeline", url="", setting="api.pipeline")
        self._breakers = RouterBreakers(router)

    async def read(self) -> PartStates:
        """Return what the parts say, asked all at once."""
        found = await asyncio.gather(
            self._state("router", self._router, self._read_router),
            self._state("sqs", self._queues, self._read_queues),
            self._state("pipeline", self._pipeline, self._read_pipeline),
        )
        states = [each for each in found if each is not None]
        lags = [each.pipeline_lag for each in states if each.pipeline_lag is not None]
        return PartStates(
            tuple(part for each in states for part in each.parts),
            tuple(reason for each in states for reason in each.reasons),
            tuple(view for each in states for view in each.breakers),
            max(lags, default=None),
            await self._cluster(),
        )

    async def _cluster(self) -> ClusterView | None:
        """Return the nodes of the SQS server; None if it is the only one, or does not answer."""
        try:
            return msgspec.json.decode(await self._queues.ask("GET", "/cluster"), type=ClusterView)
        except (PenstockError, Refused, msgspec.DecodeError):
            return None

    async def _state(self, name: str, upstream: Upstream, read: _Read) -> PartStates | None:
        url = mask_whole_url(upstream.url)
        try:
            reasons, breakers, lag = await read()
        except PartNotConfigured:
            return None
        except (PenstockError, Refused, msgspec.DecodeError) as error:
            known = error.message if isinstance(error, PenstockError) else ""
            reason = HealthReason(
                HealthCode.PART_UNREACHABLE,
                HealthStatus.DEGRADED,
                known.partition("; ")[0] or f"the {upstream.part} at {url} is not ready",
                f"see its log; `penstock up` restarts a part that ends. Its address is {upstream.setting}",
                "#/",
            )
            return PartStates((PartHealth(name, url, HealthStatus.DEGRADED, reason.message),), (reason,))
        worst = max((each.status for each in reasons), key=list(HealthStatus).index, default=HealthStatus.HEALTHY)
        detail = "; ".join(each.message for each in reasons)
        return PartStates((PartHealth(name, url, worst, detail),), tuple(reasons), tuple(breakers), lag)

    async def _read_router(self) -> _Found:
        overview, pools, queues = await asyncio.gather(
            self._router.ask("GET", "/monitoring"),
            self._router.ask("GET", "/monitoring/pools"),
            self._router.ask("GET", "/monitoring/queues"),
        )
        reasons = [
            *_router_reasons(msgspec.json.decode(overview, type=Overview)),
            *_queue_reasons(msgspec.json.decode(queues, type=QueueList)),
            *_pool_reasons(msgspec.json.decode(pools, type=RouterPoolList)),
        ]
        return reasons, await self._breakers.views(), None

    async def _read_queues(self) -> _Found:
        await self._queues.ask("GET", "/health/ready")
        return [], [], None

    async def _read_pipeline(self) -> _Found:
        answer = msgspec.json.decode(await self._pipeline.ask("GET", PIPELINE_PATH), type=PipelineAnswer)
        lags = [query["lag"] for query in answer.queries if query.get("lag") is not None]
        return [*_pipeline_reasons(answer)], [], max(lags, default=0)


def _router_reasons(overview: Overview) -> Iterable[HealthReason]:
    if not overview.sync.initialised or overview.sync.last_failure is not None:
        first = not overview.sync.initialised
        yield HealthReason(
            HealthCode.PART_UNREACHABLE,
            HealthStatus.DEGRADED if first else HealthStatus.WARNING,
            f"the router has no {'configuration' if first else 'new configuration'}: "
            f"{overview.sync.last_failure or 'the first sync is under way'}",
            "see that it reaches the API; it goes on with the last configuration that it read",
            "#/pools",
        )
    open_ones = {severity: count for severity, count in overview.unacknowledged_warnings.items() if count}
    if grave := {name: count for name, count in open_ones.items() if name in ("ERROR", "CRITICAL")}:
        yield HealthReason(
            HealthCode.ROUTER_WARNINGS,
            HealthStatus.DEGRADED if "CRITICAL" in grave else HealthStatus.WARNING,
            f"the router has {sum(grave.values())} warnings that no one has acknowledged",
            "read them on the page, act, and acknowledge them",
            "#/warnings",
        )


def _queue_reasons(found: QueueList) -> Iterable[HealthReason]:
    for queue in found.queues:
        if queue.draining:
            continue
        if not queue.healthy:
            yield HealthReason(
                HealthCode.QUEUE_UNREACHABLE,
                HealthStatus.DEGRADED,
                f"the router does not reach the queue {queue.name}",
                "see that the queue's server runs; the router goes on trying, and its warnings have the reason",
                "#/queues",
            )
        elif queue.paused:
            yield HealthReason(
                HealthCode.QUEUE_PAUSED,
                HealthStatus.WARNING,
                f"the queue {queue.name} is paused, because its pool is full",
                "it goes on by itself; a slow subscriber needs a larger pool (`penstock pools set`)",
                "#/queues",
            )


def _pool_reasons(found: RouterPoolList) -> Iterable[HealthReason]:
    for pool in found.pools:
        is_at_limit = pool.rate_limited or pool.available_permits == 0
        if pool.queued >= pool.queue_capacity or (is_at_limit and pool.oldest_waiting_s > LATE_S):
            limit = (
                f"{pool.rate_limit_per_minute} a minute"
                if pool.rate_limited
                else f"{pool.concurrency} at the same time"
            )
            yield HealthReason(
                HealthCode.POOL_FULL,
                HealthStatus.WARNING,
                f"the pool {pool.code} is at its limit of {limit}: {pool.queued} messages wait, the first for "
                f"{pool.oldest_waiting_s:.0f} s",
                f"`penstock pools set {pool.code} --concurrency N`, if the subscriber can take more",
                "#/pools",
            )


def _pipeline_reasons(answer: PipelineAnswer) -> Iterable[HealthReason]:
    for query in answer.queries:
        name = query.get("name", "a query")
        if query.get("status") in _FAILING:
            yield HealthReason(
                HealthCode.PIPELINE_FAILING,
                HealthStatus.DEGRADED,
                f"the pipeline's {name} fails: {query.get('lastError') or 'no reason was recorded'}",
                "it is started again by itself; the database, the queue or the lake refuses",
                "#/pipeline",
            )
        elif (query.get("lag") or 0) > MOST_ROWS:
            yield HealthReason(
                HealthCode.PIPELINE_LAGS,
                HealthStatus.WARNING,
                f"{query['lag']} rows wait for the pipeline's {name}",
                "it catches up when less is published; else give Spark more cores (`--master`)",
                "#/pipeline",
            )

"""`GET /api/router/config`: what `penstock serve router --config` asks for, made from the pools and the queue."""

from collections.abc import Sequence

import msgspec

from penstock.domain.subscription import Pool
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import AnyRoute, Call, NoBody, Route
from penstock.jobs.api.pools import PoolView
from penstock.jobs.repository import JobRepository

ROUTER_CONFIG_PATH = "/api/router/config"
QUEUE_NAME = "dispatch"


class QueueToConsume(msgspec.Struct, frozen=True, rename="camel"):
    """A queue that routers consume."""

    queue_name: str
    queue_uri: str
    connections: int = 1


class RouterConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """The configuration in the form that routers read."""

    processing_pools: list[PoolView]
    queues: list[QueueToConsume]


class RouterConfigRoutes:
    """The route of routers. A pool that no table names is there all the same, if jobs go to it by default."""

    def __init__(self, repository: JobRepository, queue_uri: str, default_pool: str) -> None:
        self._repository = repository
        self._queues = [QueueToConsume(QUEUE_NAME, queue_uri)] if queue_uri else []
        self._default_pool = default_pool

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="GET",
                path=ROUTER_CONFIG_PATH,
                summary="The configuration of routers: all pools, and the queue that jobs are published to.",
                answer=RouterConfiguration,
                handler=self._get,
            ),
        )

    async def _get(self, _: Call[NoQuery, NoBody]) -> RouterConfiguration:
        pools = self._with_default(await self._repository.list_pools())
        shown = [PoolView(pool.code, pool.concurrency, pool.rate_limit_per_minute) for pool in pools]
        return RouterConfiguration(shown, self._queues)

    def _with_default(self, pools: Sequence[Pool]) -> list[Pool]:
        known = any(pool.code == self._default_pool for pool in pools)
        return [*pools, *([] if known else [Pool(self._default_pool)])]

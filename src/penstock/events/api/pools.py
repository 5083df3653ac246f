"""`/api/v1/pools`: the pools, and `/api/router/config`: the configuration that routers read."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from penstock.client.types import (
    PageQuery,
    PoolBody,
    PoolList,
    PoolToServe,
    PoolView,
    QueueToConsume,
    RouterConfigurationView,
)
from penstock.domain.errors import InvalidArgument
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.domain.pace.credit import CreditLimits
from penstock.domain.subscription import MOST_CODE_CHARS, Pool, is_pool_code
from penstock.edge.pause import Pause
from penstock.events.errors import DatabaseFailed, PoolNotFound
from penstock.events.store import JobRepository
from penstock.http.api import Call, NoBody, NoQuery, page_of, route
from penstock.queues import creates_itself, pool_queue, pool_queue_name

PATH = "/api/v1/pools"
_ONE = f"{PATH}/{{code}}"
ROUTER_CONFIG_PATH = "/api/router/config"
QUEUE_NAME = "dispatch"
_SHARED_QUEUE = (DEFAULT_DISPATCH_POOL,)
_WATCH_S = 2.0


class PoolRoutes:
    """The routes of pools; `changed` is called after every change."""

    def __init__(self, repository: JobRepository, changed: Callable[[], None]) -> None:
        self._repository = repository
        self._changed = changed

    @route("GET", PATH, summary="List pools by code.")
    async def _list(self, call: Call[PageQuery, NoBody]) -> PoolList:
        found = await self._repository.list_pools()
        page, cursor = page_of(found, lambda pool: (pool.code,), tuple[str], call.query.limit, call.query.cursor)
        return PoolList([_view(pool) for pool in page], cursor)

    @route("GET", _ONE, summary="Get a pool.")
    async def _get(self, call: Call[NoQuery, NoBody]) -> PoolView:
        return _view(await self._repository.get_pool(_known(call.path["code"])))

    @route("PUT", _ONE, summary="Create or change a pool. Routers that read their configuration here follow.")
    async def _put(self, call: Call[NoQuery, PoolBody]) -> PoolView:
        code = call.path["code"]
        if not is_pool_code(code):
            raise InvalidArgument(f"a pool's code has 1 to {MOST_CODE_CHARS} printable characters, not {code[:100]!r}")
        pool = Pool(code, call.body.concurrency, call.body.rate_limit_per_minute)
        await self._repository.put_pool(pool)
        self._changed()
        return _view(pool)

    @route("DELETE", _ONE, summary="Delete a pool.")
    async def _delete(self, call: Call[NoQuery, NoBody]) -> PoolView:
        code = _known(call.path["code"])
        pool = await self._repository.get_pool(code)
        await self._repository.delete_pool(code)
        self._changed()
        return _view(pool)


class RouterConfigRoutes:
    """The route that routers read: all pools, also those that were never created, and the queues that feed them.

    A pool's queue is used once it was listed here: before, no router may consume it. A pool that no subscription names
    any more is listed as long as its queue may have messages.
    """

    def __init__(self, repository: JobRepository, queue_uri: str, default_pool: str, *, queue_per_pool: bool) -> None:
        self._repository = repository
        self._queue_uri = queue_uri
        self._default_pool = default_pool
        self._queue_per_pool = queue_per_pool

    @route(
        "GET",
        ROUTER_CONFIG_PATH,
        summary="Get the configuration of routers: all pools, and the queues that jobs are published to.",
    )
    async def _get(self, _: Call[NoQuery, NoBody]) -> RouterConfigurationView:
        with_queue = await self._repository.pool_queues()
        limits = await self._repository.pool_limits()
        codes = [code for code in dict.fromkeys((*limits, *with_queue, self._default_pool)) if is_pool_code(code)]
        pools = [_to_serve(code, limits.get(code)) for code in codes]
        # Jobs that name no pool are in the shared queue.
        if self._queue_per_pool and self._queue_uri and (new := set(codes).difference(with_queue, _SHARED_QUEUE)):
            await self._repository.add_pool_queues(sorted(new))
        return RouterConfigurationView(pools, self._queues(codes if self._queue_per_pool else with_queue))

    def _queues(self, codes: Iterable[str]) -> list[QueueToConsume]:
        if not self._queue_uri:
            return []
        shared = self._queue_uri
        own = (code for code in codes if code != DEFAULT_DISPATCH_POOL)
        return [
            QueueToConsume(QUEUE_NAME, shared, template=shared if creates_itself(shared) else None),
            *(
                QueueToConsume(pool_queue_name(QUEUE_NAME, code), pool_queue(shared, code), template=shared)
                for code in own
            ),
        ]


class PoolQueueWatch:
    """Notes when dispatch, perhaps in another process, has removed the queue of a pool."""

    def __init__(self, repository: JobRepository, changed: Callable[[], None], pause: Pause) -> None:
        self._repository = repository
        self._changed = changed
        self._pause = pause

    async def run(self) -> None:
        """Look every two seconds until cancelled; a database that does not answer is asked again."""
        known: set[str] = set()
        while True:
            with suppress(DatabaseFailed):
                found = set(await self._repository.pool_queues())
                if known - found:
                    self._changed()
                known = found
            await self._pause(_WATCH_S)


def _view(pool: Pool) -> PoolView:
    return PoolView(pool.code, pool.concurrency, pool.rate_limit_per_minute)


def _to_serve(code: str, limits: CreditLimits | None) -> PoolToServe:
    pool = limits or CreditLimits(shared=False)
    return PoolToServe(code, pool.concurrency, pool.rate_limit_per_minute, pool.shared)


def _known(code: str) -> str:
    if not is_pool_code(code):
        raise PoolNotFound(code[:100])
    return code

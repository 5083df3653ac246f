"""`/api/v1/pools`: the pools, and `/api/router/config`: the configuration that routers read."""

from collections.abc import Callable, Sequence

from penstock.client.types import PageQuery, PoolBody, PoolList, PoolView, QueueToConsume, RouterConfigurationView
from penstock.domain.errors import InvalidArgument
from penstock.domain.subscription import Pool
from penstock.events.errors import PoolNotFound
from penstock.events.store import JobRepository
from penstock.http.api import Call, NoBody, NoQuery, page_of, route

PATH = "/api/v1/pools"
_ONE = f"{PATH}/{{code}}"
MOST_CODE_CHARS = 256
ROUTER_CONFIG_PATH = "/api/router/config"
QUEUE_NAME = "dispatch"


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
        if not _is_code(code):
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
    """The route that routers read. It includes the default pool, even if that was never created."""

    def __init__(self, repository: JobRepository, queue_uri: str, default_pool: str) -> None:
        self._repository = repository
        self._queues = [QueueToConsume(QUEUE_NAME, queue_uri)] if queue_uri else []
        self._default_pool = default_pool

    @route(
        "GET",
        ROUTER_CONFIG_PATH,
        summary="Get the configuration of routers: all pools, and the queue that jobs are published to.",
    )
    async def _get(self, _: Call[NoQuery, NoBody]) -> RouterConfigurationView:
        pools = self._with_default(await self._repository.list_pools())
        shown = [_view(pool) for pool in pools]
        return RouterConfigurationView(shown, self._queues)

    def _with_default(self, pools: Sequence[Pool]) -> list[Pool]:
        known = any(pool.code == self._default_pool for pool in pools)
        return [*pools, *([] if known else [Pool(self._default_pool)])]


def _view(pool: Pool) -> PoolView:
    return PoolView(pool.code, pool.concurrency, pool.rate_limit_per_minute)


def _is_code(code: str) -> bool:
    return code.isprintable() and bool(code.strip()) and len(code) <= MOST_CODE_CHARS


def _known(code: str) -> str:
    if not _is_code(code):
        raise PoolNotFound(code[:100])
    return code

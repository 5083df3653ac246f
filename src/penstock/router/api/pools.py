"""`/monitoring/pools` and `/monitoring/groups`: looking at pools, and changing their limits."""

from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.core.errors import NotFound
from penstock.router.configuration import MAX_CONCURRENCY, MAX_RATE_PER_MINUTE
from penstock.router.surface import RouterSurface
from penstock.router.views import GroupView, PoolView
from penstock.telemetry.query import NoQuery
from penstock.telemetry.routes import AnyRoute, Call, NoBody, Route


class PoolList(msgspec.Struct, frozen=True):
    """All pools."""

    pools: list[PoolView]


class GroupQuery(msgspec.Struct, frozen=True):
    """Which groups to show."""

    pool: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class GroupList(msgspec.Struct, frozen=True):
    """Groups that have messages, the longest queues first."""

    groups: list[GroupView]


class PoolChange(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What shall be different; a rate limit of null takes the limit away."""

    concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)] | UnsetType = UNSET
    rate_limit_per_minute: Annotated[int, Meta(ge=1, le=MAX_RATE_PER_MINUTE)] | UnsetType | None = UNSET


_NO_CHANGE = PoolChange()


class PoolRoutes:
    """The routes of pools and groups."""

    def __init__(self, router: RouterSurface) -> None:
        self._router = router

    def routes(self) -> tuple[AnyRoute, ...]:
        """What is served."""
        return (
            Route(
                method="GET",
                path="/monitoring/pools",
                summary="All pools, those that are draining too.",
                answer=PoolList,
                handler=self._list,
            ),
            Route(
                method="PUT",
                path="/monitoring/pools/{code}",
                summary="Change a pool's limits until the configuration says otherwise.",
                answer=PoolView,
                body=PoolChange,
                handler=self._change,
                refusals=(HTTPStatus.CONFLICT,),
            ),
            Route(
                method="GET",
                path="/monitoring/groups",
                summary="Groups that have messages, the longest queues first.",
                answer=GroupList,
                query=GroupQuery,
                handler=self._groups,
            ),
        )

    def _list(self, _: Call[NoQuery, NoBody]) -> PoolList:
        return PoolList(self._router.pools())

    def _groups(self, call: Call[GroupQuery, NoBody]) -> GroupList:
        return GroupList(self._router.groups(call.query.pool, call.query.limit))

    async def _change(self, call: Call[NoQuery, PoolChange]) -> PoolView:
        code, change = call.path["code"], call.body
        if change != _NO_CHANGE:
            await self._router.change_pool(
                code,
                concurrency=change.concurrency or None,
                rate_limit_per_minute=change.rate_limit_per_minute or None,
                unlimited_rate=change.rate_limit_per_minute is None,
            )
        return self._find(code)

    def _find(self, code: str) -> PoolView:
        for pool in self._router.pools():
            if pool.code == code and not pool.draining:
                return pool
        raise NotFound(f"there is no pool {code!r}; GET /monitoring/pools has them all")

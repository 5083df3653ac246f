"""`/monitoring/pools` and `/monitoring/groups`: list pools and groups, and change the limits of pools."""

from enum import StrEnum
from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.client.types import Cursor, Limit, WholeOrPageQuery
from penstock.domain.errors import NotFound
from penstock.http.api import Call, NoBody, NoQuery, check_no_cursor, page_of, route, whole_or_page_of
from penstock.router.config.configuration import MAX_CONCURRENCY, MAX_RATE_PER_MINUTE
from penstock.router.monitoring.views import RouterGroupView, RouterPoolView, RouterSurface, longest


class RouterPoolList(msgspec.Struct, frozen=True):
    """Pools; `cursor` requests the next page, null on the last."""

    pools: list[RouterPoolView]
    cursor: str | None


class GroupSorting(StrEnum):
    """By pool and name, which is stable; or the longest queues first, which has no next page."""

    NAME = "name"
    LONGEST = "longest"


class GroupQuery(msgspec.Struct, frozen=True):
    """Filter, order and page of groups."""

    pool: str | None = None
    limit: Limit = 100
    order: GroupSorting = GroupSorting.NAME
    cursor: Cursor | None = None


class GroupList(msgspec.Struct, frozen=True):
    """Groups that have messages; `cursor` requests the next page, null on the last."""

    groups: list[RouterGroupView]
    cursor: str | None


class PoolChange(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The limits to change; a rate limit of null removes the limit."""

    concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)] | UnsetType = UNSET
    rate_limit_per_minute: Annotated[int, Meta(ge=1, le=MAX_RATE_PER_MINUTE)] | UnsetType | None = UNSET


_NO_CHANGE = PoolChange()


class RouterPoolRoutes:
    """The routes of pools and groups."""

    def __init__(self, router: RouterSurface) -> None:
        self._router = router

    @route("GET", "/monitoring/pools", summary="List all pools, including draining ones.")
    def _list(self, call: Call[WholeOrPageQuery, NoBody]) -> RouterPoolList:
        pools, query = self._router.pools(), call.query
        return RouterPoolList(
            *whole_or_page_of(pools, lambda pool: (pool.code,), tuple[str], query.limit, query.cursor)
        )

    @route(
        "PUT",
        "/monitoring/pools/{code}",
        summary="Change a pool's limits until the next change of the configuration.",
        refusals=(HTTPStatus.CONFLICT,),
    )
    async def _change(self, call: Call[NoQuery, PoolChange]) -> RouterPoolView:
        code, change = call.path["code"], call.body
        if change != _NO_CHANGE:
            await self._router.change_pool(
                code,
                concurrency=change.concurrency or None,
                rate_limit_per_minute=change.rate_limit_per_minute or None,
                unlimited_rate=change.rate_limit_per_minute is None,
            )
        return self._find(code)

    @route("GET", "/monitoring/groups", summary="List the groups that have messages, by name or by queue length.")
    def _groups(self, call: Call[GroupQuery, NoBody]) -> GroupList:
        query = call.query
        groups = self._router.groups(query.pool)
        if query.order is GroupSorting.LONGEST:
            check_no_cursor(query.cursor, "order=longest")
            return GroupList(longest(groups, query.limit), None)
        return GroupList(*page_of(groups, _name, tuple[str, str], query.limit, query.cursor))

    def _find(self, code: str) -> RouterPoolView:
        for pool in self._router.pools():
            if pool.code == code and not pool.draining:
                return pool
        raise NotFound(f"there is no pool {code!r}; GET /monitoring/pools lists them")


def _name(group: RouterGroupView) -> tuple[str, str]:
    return group.pool, group.group

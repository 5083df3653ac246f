"""`/api/v1/breakers`: the circuit breakers of subscribers' endpoints, of this API process and of the router."""

from http import HTTPStatus
from typing import Protocol

from penstock.client.types import WholeOrPageQuery
from penstock.delivery import Breakers, BreakerView
from penstock.domain.breaker import BreakerState
from penstock.domain.errors import NotFound
from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.router import BreakerList, BreakerReset, ResetCount, breaker_list

PATH = "/api/v1/breakers"


class RemoteBreakers(Protocol):
    """The breakers of a router that delivers jobs in its own process; none if it does not answer."""

    async def views(self) -> list[BreakerView]:
        """Return the breakers of subscribers' endpoints."""
        ...

    async def reset(self, endpoint: str) -> bool:
        """Close the breaker of an endpoint; return False if there is none."""
        ...


class SubscriberBreakerRoutes:
    """The routes of the breakers of subscribers' endpoints."""

    def __init__(self, breakers: Breakers, remote: RemoteBreakers) -> None:
        self._breakers = breakers
        self._remote = remote

    @route("GET", PATH, summary="List the circuit breakers of subscribers' endpoints.")
    async def _list(self, call: Call[WholeOrPageQuery, NoBody]) -> BreakerList:
        return breaker_list(await self._views(), call.query)

    @route(
        "POST",
        f"{PATH}/reset",
        summary="Close the breaker of one subscriber's endpoint.",
        refusals=(HTTPStatus.NOT_FOUND,),
    )
    async def _reset(self, call: Call[NoQuery, BreakerReset]) -> ResetCount:
        endpoint = call.body.endpoint
        here, there = self._breakers.reset(endpoint), await self._remote.reset(endpoint)
        if not here and not there:
            raise NotFound(f"there is no breaker of {endpoint[:200]!r}; GET {PATH} lists all")
        return ResetCount(1)

    @route("POST", f"{PATH}/reset-all", summary="Close the breakers of all subscribers' endpoints.")
    async def _reset_all(self, _: Call[NoQuery, NoBody]) -> ResetCount:
        views = await self._views()
        self._breakers.reset_all()
        for view in await self._remote.views():
            await self._remote.reset(view.endpoint)
        return ResetCount(len(views))

    async def _views(self) -> list[BreakerView]:
        """Return all breakers, sorted by endpoint; of two of one endpoint the one that is open or saw more."""
        worst: dict[str, BreakerView] = {}
        for view in (*self._breakers.views(), *await self._remote.views()):
            known = worst.get(view.endpoint)
            if known is None or _weight(view) > _weight(known):
                worst[view.endpoint] = view
        return [worst[endpoint] for endpoint in sorted(worst)]


def _weight(view: BreakerView) -> tuple[bool, int]:
    return view.state != BreakerState.CLOSED, view.calls

"""`/api/v1/breakers`: the circuit breakers of subscribers' endpoints in this API process."""

from http import HTTPStatus

from penstock.client.types import WholeOrPageQuery
from penstock.delivery import Breakers
from penstock.domain.errors import NotFound
from penstock.http.api import Call, NoBody, NoQuery, route
from penstock.router import BreakerList, BreakerReset, ResetCount, breaker_list

PATH = "/api/v1/breakers"


class SubscriberBreakerRoutes:
    """The routes of the breakers of subscribers' endpoints."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers

    @route("GET", PATH, summary="List the circuit breakers of subscribers' endpoints.")
    def _list(self, call: Call[WholeOrPageQuery, NoBody]) -> BreakerList:
        return breaker_list(self._breakers.views(), call.query)

    @route(
        "POST",
        f"{PATH}/reset",
        summary="Close the breaker of one subscriber's endpoint.",
        refusals=(HTTPStatus.NOT_FOUND,),
    )
    def _reset(self, call: Call[NoQuery, BreakerReset]) -> ResetCount:
        if not self._breakers.reset(call.body.endpoint):
            raise NotFound(f"there is no breaker of {call.body.endpoint[:200]!r}; GET {PATH} lists all")
        return ResetCount(1)

    @route("POST", f"{PATH}/reset-all", summary="Close the breakers of all subscribers' endpoints.")
    def _reset_all(self, _: Call[NoQuery, NoBody]) -> ResetCount:
        return ResetCount(self._breakers.reset_all())

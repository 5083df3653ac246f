"""`/monitoring/circuit-breakers`: list breakers, and close them by hand."""

from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.client.types import WholeOrPageQuery
from penstock.delivery import BreakerView
from penstock.domain.errors import NotFound
from penstock.http.api import Call, NoBody, NoQuery, route, whole_or_page_of
from penstock.router.monitoring.views import RouterSurface

_PATH = "/monitoring/circuit-breakers"


class BreakerList(msgspec.Struct, frozen=True, rename="camel"):
    """The breakers of all endpoints, sorted by endpoint; `cursor` requests the next page, null on the last."""

    circuit_breakers: list[BreakerView]
    cursor: str | None


def breaker_list(breakers: list[BreakerView], query: WholeOrPageQuery) -> BreakerList:
    """Return all breakers, or a page of them."""
    return BreakerList(
        *whole_or_page_of(breakers, lambda each: (each.endpoint,), tuple[str], query.limit, query.cursor)
    )


class BreakerReset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint whose breaker to close, as the list shows it. It is a URL, so it cannot be part of the path."""

    endpoint: Annotated[str, Meta(min_length=1)]


class ResetCount(msgspec.Struct, frozen=True):
    """Number of breakers that were closed."""

    reset: int


class RouterBreakerRoutes:
    """The routes of breakers."""

    def __init__(self, router: RouterSurface) -> None:
        self._router = router

    @route("GET", _PATH, summary="List the breakers of all endpoints.")
    def _list(self, call: Call[WholeOrPageQuery, NoBody]) -> BreakerList:
        return breaker_list(self._router.breakers(), call.query)

    @route("POST", f"{_PATH}/reset", summary="Close the breaker of one endpoint.", refusals=(HTTPStatus.NOT_FOUND,))
    def _reset(self, call: Call[NoQuery, BreakerReset]) -> ResetCount:
        endpoint = call.body.endpoint
        if not self._router.reset_breaker(endpoint):
            raise NotFound(f"there is no breaker of {endpoint[:200]!r}; GET {_PATH} lists them")
        return ResetCount(1)

    @route("POST", f"{_PATH}/reset-all", summary="Close all breakers.")
    def _reset_all(self, _: Call[NoQuery, NoBody]) -> ResetCount:
        return ResetCount(self._router.reset_breakers())

"""`/api/router/…`: the router's monitoring, pools, breakers and warnings."""

from penstock.api.gateway import Gateway
from penstock.api.router_news import RELOAD, RELOAD_S
from penstock.api.upstream import Upstream
from penstock.router.api.breakers import BreakerList, BreakerReset, ResetCount
from penstock.router.api.in_flight import InFlightList, InFlightQuery
from penstock.router.api.overview import Overview
from penstock.router.api.pools import GroupList, GroupQuery, PoolChange, PoolList
from penstock.router.api.queues import QueueList
from penstock.router.api.reload import Reloaded
from penstock.router.api.warning_list import WarningCount, WarningList, WarningQuery
from penstock.router.views import PoolView
from penstock.router.warnings import RouterWarning
from penstock.telemetry.paging import WholeOrPageQuery
from penstock.telemetry.routes import AnyRoute

PREFIX = "/api/router"
_BREAKERS = "/monitoring/circuit-breakers"


def router_routes(upstream: Upstream) -> tuple[AnyRoute, ...]:
    """What gets through to the router."""
    to = Gateway(upstream, PREFIX).route
    return (
        to("GET", "/monitoring", "The router's health and totals.", Overview),
        to("GET", "/monitoring/pools", "The router's pools.", PoolList, query=WholeOrPageQuery),
        to(
            "PUT",
            "/monitoring/pools/{code}",
            "Change a pool's limits until the configuration says otherwise.",
            PoolView,
            body=PoolChange,
            timeout_s=RELOAD_S,
        ),
        to("GET", "/monitoring/groups", "Groups that have messages in the router.", GroupList, query=GroupQuery),
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
            "Messages that the router has in hand.",
            InFlightList,
            query=InFlightQuery,
        ),
        to("GET", _BREAKERS, "The breakers of all endpoints.", BreakerList, query=WholeOrPageQuery),
        to("POST", f"{_BREAKERS}/reset", "Close the breaker of one endpoint.", ResetCount, body=BreakerReset),
        to("POST", f"{_BREAKERS}/reset-all", "Close all breakers.", ResetCount),
        to("POST", RELOAD, "Let the router fetch its configuration now.", Reloaded, timeout_s=RELOAD_S),
        to("GET", "/warnings", "The router's warnings, newest first.", WarningList, query=WarningQuery),
        to("POST", "/warnings/acknowledge-all", "Mark all warnings as seen.", WarningCount),
        to("POST", "/warnings/{id}/acknowledge", "Mark a warning as seen.", RouterWarning),
    )

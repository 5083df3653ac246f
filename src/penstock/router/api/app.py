"""The router's HTTP surface: probes, the routes of every part, their OpenAPI document, and the test endpoints."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.edge.clock import pause
from penstock.http.api.app import ApiApp
from penstock.http.api.openapi import Json, openapi_document
from penstock.http.api.probes import Probes
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import Call, NoBody, Route, RouteTable
from penstock.http.auth.guard import RequestGuard
from penstock.http.auth.keys import KeyFile
from penstock.http.server.asgi import App, Receive, Scope, Send
from penstock.ops.telemetry.metrics import Metrics
from penstock.router.api.breakers import BreakerRoutes
from penstock.router.api.health import readiness
from penstock.router.api.in_flight import InFlightRoutes
from penstock.router.api.overview import OverviewRoutes
from penstock.router.api.pools import PoolRoutes
from penstock.router.api.queues import QueueRoutes
from penstock.router.api.reload import ReloadRoutes
from penstock.router.api.seeding import SeedRoutes
from penstock.router.api.test_endpoints import PREFIX, TestEndpoints
from penstock.router.api.warning_list import WarningRoutes
from penstock.router.config_sync import ConfigSync
from penstock.router.metrics import RouterCollector
from penstock.router.pool_metrics import RouterMetrics
from penstock.router.settings import RouterSettings
from penstock.router.standby import Leadership
from penstock.router.surface import RouterSurface
from penstock.router.warnings import Warnings
from penstock.sources.opening import publisher_for
from penstock.sources.port import Publisher

_DESCRIPTION = "Looking into a running Penstock router, and changing what may be changed while it runs."


@dataclass(frozen=True, kw_only=True)
class RouterParts:
    """What the API shows and drives."""

    settings: RouterSettings
    router: RouterSurface
    sync: ConfigSync
    warnings: Warnings
    metrics: RouterMetrics
    leadership: Leadership
    new_id: Callable[[], str]
    # Where this server is reached; known when it listens.
    own_url: Callable[[], str]
    publisher_for: Callable[[str], Publisher] = publisher_for


def router_app(parts: RouterParts) -> App:
    """The whole HTTP surface of a router."""
    metrics = Metrics("router")
    metrics.register(RouterCollector(parts.router, parts.metrics, parts.warnings))
    settings = parts.settings
    keys = None if settings.api_keys is None else KeyFile(settings.api_keys).current
    api = ApiApp(_documented(parts), RequestGuard(settings.api_token, keys))
    app = _with_test_endpoints(api) if settings.test_endpoints else api
    return Probes(metrics, readiness(parts.sync, parts.router)).wrap(app)


def route_table(parts: RouterParts) -> RouteTable:
    """The routes of every part."""
    router, sync, settings = parts.router, parts.sync, parts.settings

    def test_endpoints_url() -> str | None:
        return parts.own_url() if settings.test_endpoints else None

    return RouteTable(
        *OverviewRoutes(router, sync, parts.warnings, parts.leadership, enabled=settings.enabled).routes(),
        *PoolRoutes(router).routes(),
        *QueueRoutes(router).routes(),
        *BreakerRoutes(router).routes(),
        *InFlightRoutes(router).routes(),
        *WarningRoutes(parts.warnings).routes(),
        *ReloadRoutes(sync).routes(),
        *SeedRoutes(sync, parts.publisher_for, parts.new_id, test_endpoints_url).routes(),
    )


def openapi(parts: RouterParts) -> Json:
    """The document that describes the routes."""
    return openapi_document(route_table(parts), "Penstock router", _DESCRIPTION)


def _documented(parts: RouterParts) -> RouteTable:
    """The routes, and one more that describes them."""
    document = openapi(parts)

    def describe(_: Call[NoQuery, NoBody]) -> Json:
        return document

    about = Route(method="GET", path="/openapi.json", summary="This document.", answer=dict, handler=describe)
    return RouteTable(*route_table(parts).routes, about)


def _with_test_endpoints(api: App) -> App:
    endpoints = TestEndpoints(pause)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        await (endpoints if ours else api)(scope, receive, send)

    return app

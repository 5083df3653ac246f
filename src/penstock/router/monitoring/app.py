"""The router's HTTP application: probes, all routes, their OpenAPI document, and the test endpoints."""

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

from penstock.edge.pause import pause
from penstock.http.api import (
    ApiApp,
    Call,
    Json,
    NoBody,
    NoQuery,
    Probes,
    RouteTable,
    documented,
    openapi_document,
    route,
    routes_of,
)
from penstock.http.auth import KeyFile, RequestGuard
from penstock.http.server import App, Receive, Scope, Send
from penstock.ops.telemetry import Metrics
from penstock.queues import Publisher, publisher_for
from penstock.router.config.sync import ConfigSync
from penstock.router.leadership import RouterLeadership
from penstock.router.monitoring.breakers import RouterBreakerRoutes
from penstock.router.monitoring.health import readiness
from penstock.router.monitoring.in_flight import InFlightRoutes
from penstock.router.monitoring.metrics import RouterCollector
from penstock.router.monitoring.overview import OverviewRoutes
from penstock.router.monitoring.pools import RouterPoolRoutes
from penstock.router.monitoring.queues import QueueRoutes
from penstock.router.monitoring.seed_routes import SeedRoutes
from penstock.router.monitoring.test_endpoints import PREFIX, TestEndpoints
from penstock.router.monitoring.views import RouterSurface
from penstock.router.monitoring.warning_routes import WarningRoutes
from penstock.router.monitoring.warnings import Warnings
from penstock.router.pools.counts import RouterMetrics
from penstock.router.settings import RouterSettings

_DESCRIPTION = "Inspect a running Penstock router, and change what can be changed while it runs."


class Reloaded(msgspec.Struct, frozen=True):
    """Number of pools and queues in the reloaded configuration."""

    pools: int
    queues: int


class ReloadRoutes:
    """The route that reloads the configuration."""

    def __init__(self, sync: ConfigSync) -> None:
        self._sync = sync

    @route(
        "POST",
        "/config/reload",
        summary="Fetch and apply the configuration now, in one attempt.",
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE),
    )
    async def _reload(self, _: Call[NoQuery, NoBody]) -> Reloaded:
        configuration = await self._sync.reload()
        return Reloaded(len(configuration.processing_pools), len(configuration.queues))


@dataclass(frozen=True, kw_only=True)
class RouterParts:
    """The parts of a router that its API shows and controls."""

    settings: RouterSettings
    router: RouterSurface
    sync: ConfigSync
    warnings: Warnings
    metrics: RouterMetrics
    leadership: RouterLeadership
    new_id: Callable[[], str]
    # The URL of this server, known once it listens.
    own_url: Callable[[], str]
    publisher_for: Callable[[str], Publisher] = publisher_for
    # What /metrics shows; others may have added theirs.
    exposed: Metrics = field(default_factory=lambda: Metrics("router"))


def router_app(parts: RouterParts) -> App:
    """Return the HTTP application of a router."""
    metrics = parts.exposed
    metrics.register(RouterCollector(parts.router, parts.metrics, parts.warnings))
    settings = parts.settings
    keys = None if settings.api_keys is None else KeyFile(settings.api_keys).current
    api = ApiApp(documented(route_table(parts), openapi(parts)), RequestGuard(settings.api_token, keys))
    app = _with_test_endpoints(api) if settings.test_endpoints else api
    return Probes(metrics, readiness(parts.sync, parts.router)).wrap(app)


def route_table(parts: RouterParts) -> RouteTable:
    """Return the routes of every part."""
    router, sync, settings = parts.router, parts.sync, parts.settings

    def test_endpoints_url() -> str | None:
        return parts.own_url() if settings.test_endpoints else None

    return RouteTable(
        *routes_of(
            OverviewRoutes(router, sync, parts.warnings, parts.leadership, enabled=settings.enabled),
            RouterPoolRoutes(router),
            QueueRoutes(router),
            RouterBreakerRoutes(router),
            InFlightRoutes(router),
            WarningRoutes(parts.warnings),
            ReloadRoutes(sync),
            SeedRoutes(sync, parts.publisher_for, parts.new_id, test_endpoints_url),
        )
    )


def openapi(parts: RouterParts) -> Json:
    """Return the OpenAPI document of the routes."""
    return openapi_document(route_table(parts), "Penstock router", _DESCRIPTION)


def _with_test_endpoints(api: App) -> App:
    endpoints = TestEndpoints(pause)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        await (endpoints if ours else api)(scope, receive, send)

    return app

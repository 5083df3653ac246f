"""The web page in front of the API, and the routes that only the page needs."""

from penstock.console.gateways import PipelineRoutes, RouterBreakers, RouterReload, queue_routes, router_routes
from penstock.console.metric_samples import MetricRoutes
from penstock.console.page import with_page
from penstock.console.part_states import OtherParts
from penstock.console.upstream import Sign, Upstream
from penstock.events.api import (
    DeliveryRoutes,
    GroupRoutes,
    JobsParts,
    ReplayRoutes,
    StatisticsRoutes,
    SubscriberBreakerRoutes,
)
from penstock.http.api import AnyRoute, routes_of
from penstock.http.server import App


class WebFront:
    """The page in front of the API, with gateways to the other parts."""

    def __init__(self, router: Upstream, queues: Upstream, pipeline: Upstream, frames: str = "") -> None:
        self._router = router
        self._queues = queues
        self._pipeline = pipeline
        self._frames = frames
        self._reload = RouterReload(router)

    @classmethod
    def at(
        cls,
        *,
        router: str,
        queues: str,
        pipeline: str,
        router_token: str = "",
        sign: Sign | None = None,
        frames: str = "",
    ) -> "WebFront":
        """Return the front for parts at these addresses; an empty address means that there is no such part.

        `frames` are the origins of pages that may show the portal in a frame.
        """
        return cls(
            Upstream(part="router", url=router, setting="api.router", token=router_token),
            Upstream(part="SQS server", url=queues, setting="api.queues", sign=sign),
            Upstream(part="pipeline", url=pipeline, setting="api.pipeline"),
            frames,
        )

    def routes(self, parts: JobsParts) -> tuple[AnyRoute, ...]:
        """Return the routes for the page."""
        return (
            *routes_of(
                GroupRoutes(parts.repository, parts.clock),
                DeliveryRoutes(parts.repository),
                StatisticsRoutes(parts.repository, parts.clock),
                ReplayRoutes(parts.repository, parts.new_id, parts.clock, parts.replays),
                SubscriberBreakerRoutes(parts.courier.breakers, RouterBreakers(self._router)),
                MetricRoutes(parts.metrics, self._router, parts.clock),
            ),
            *router_routes(self._router),
            *queue_routes(self._queues),
            *routes_of(PipelineRoutes(self._pipeline)),
        )

    def other_parts(self, *, with_pipeline: bool) -> OtherParts:
        """Return what asks the other parts how they are; without Spark there is no pipeline."""
        return OtherParts(self._router, self._queues, self._pipeline if with_pipeline else None)

    def pools_changed(self) -> None:
        """Let the router reload its configuration now."""
        self._reload.request()

    def wrap(self, app: App) -> App:
        """Return the app with the page in front."""
        return with_page(app, self._frames)

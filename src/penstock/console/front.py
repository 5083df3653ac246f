"""What the API process serves beside jobs: the page, and the routes that only the page needs."""

from penstock.console.gateways import PipelineRoutes, RouterNews, queue_routes, router_routes
from penstock.console.metric_samples import MetricRoutes
from penstock.console.page import with_page
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
    """The page in front of the API, with ways to the other parts."""

    def __init__(self, router: Upstream, queues: Upstream, pipeline: Upstream) -> None:
        self._router = router
        self._queues = queues
        self._pipeline = pipeline
        self._news = RouterNews(router)

    @classmethod
    def at(
        cls, *, router: str, queues: str, pipeline: str, router_token: str = "", sign: Sign | None = None
    ) -> "WebFront":
        """The front for parts at these addresses; empty where there is none."""
        return cls(
            Upstream(part="router", url=router, setting="api.router", token=router_token),
            Upstream(part="SQS server", url=queues, setting="api.queues", sign=sign),
            Upstream(part="pipeline", url=pipeline, setting="api.pipeline"),
        )

    def routes(self, parts: JobsParts) -> tuple[AnyRoute, ...]:
        """Routes beside those of jobs."""
        return (
            *routes_of(
                GroupRoutes(parts.repository, parts.clock),
                DeliveryRoutes(parts.repository),
                StatisticsRoutes(parts.repository, parts.clock),
                ReplayRoutes(parts.repository, parts.new_id, parts.clock),
                SubscriberBreakerRoutes(parts.courier.breakers),
                MetricRoutes(parts.metrics, self._router, parts.clock),
            ),
            *router_routes(self._router),
            *queue_routes(self._queues),
            *routes_of(PipelineRoutes(self._pipeline)),
        )

    def pools_changed(self) -> None:
        """Let the router follow at once."""
        self._news.tell()

    def wrap(self, app: App) -> App:
        """The page before the app."""
        return with_page(app)

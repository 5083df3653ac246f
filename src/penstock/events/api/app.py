"""The HTTP API of jobs: probes, all routes, the process endpoint, and their OpenAPI document."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.delivery import Courier
from penstock.domain.event import Validation
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.edge.clock import Clock
from penstock.events.accept import EventRoutes, TopicFeeds
from penstock.events.api.changes import CallerRoutes, ChangeRoutes, DatabaseChanges
from penstock.events.api.event_types import EventTypeRoutes
from penstock.events.api.feeds import FeedRoutes
from penstock.events.api.health.watch import HealthRoutes, HealthWatch, PartReader
from penstock.events.api.jobs.replay_worker import ReplayWorker
from penstock.events.api.jobs.routes import JobDecisionRoutes, JobRoutes
from penstock.events.api.pools import PoolRoutes, RouterConfigRoutes
from penstock.events.api.subscriptions.routes import SigningSecretRoutes, SubscriptionRoutes
from penstock.events.api.subscriptions.state import SubscriptionStateRoutes
from penstock.events.api.subscriptions.trial import TrialRoutes
from penstock.events.catalogue import EventSchemas
from penstock.events.fan_out import publisher_for
from penstock.events.portal import PortalLinkRoutes, PortalScope, PortalTokens
from penstock.events.process import MESSAGE_PREFIXES, AuthTokens, MessageTargets, Processor, ProcessRoute
from penstock.events.store import JobRepository
from penstock.http.api import (
    AnyRoute,
    ApiApp,
    Check,
    CheckResult,
    Json,
    Probes,
    RouteTable,
    documented,
    openapi_document,
    routes_of,
)
from penstock.http.auth import KeyFile, RequestGuard
from penstock.http.server import App
from penstock.ops.config import FanOutBy
from penstock.ops.telemetry import Metrics, NoSpans, Spans

_DESCRIPTION = "Events in, signed webhooks out: events, subscriptions, the jobs they cause, and the pools they run in."


@dataclass(frozen=True, kw_only=True)
class JobsParts:
    """What the API serves and drives."""

    repository: JobRepository
    courier: Courier
    processor: Processor
    tokens: AuthTokens
    portal: PortalTokens
    clock: Clock
    new_id: Callable[[], str]
    metrics: Metrics
    health: HealthWatch
    replays: ReplayWorker
    api_token: str = ""
    api_keys: KeyFile | None = None
    spans: Spans = NoSpans()  # noqa: RUF009  # it has no state
    queue_uri: str = ""
    default_pool: str = DEFAULT_DISPATCH_POOL
    queue_per_pool: bool = True
    fan_out: FanOutBy = FanOutBy.INLINE
    unknown_event_types: Validation = Validation.OFF
    feeds: TopicFeeds | None = None
    messages: MessageTargets = MessageTargets()  # noqa: RUF009  # it knows no server

    @property
    def has_credentials(self) -> bool:
        """Return whether callers need credentials."""
        return bool(self.api_token) or self.api_keys is not None


class ApiFront(Protocol):
    """Further routes that are served with those of jobs, such as the web console's."""

    def routes(self, parts: JobsParts) -> tuple[AnyRoute, ...]:
        """Return the routes beside those of jobs."""
        ...

    def other_parts(self, *, with_pipeline: bool) -> PartReader:
        """Return what asks the other parts how they are; without Spark there is no pipeline."""
        ...

    def pools_changed(self) -> None:
        """Note that the routers' configuration has changed."""
        ...

    def wrap(self, app: App) -> App:
        """Return an app that answers its own requests and passes the others to `app`."""
        ...


def jobs_app(parts: JobsParts, front: ApiFront | None = None) -> App:
    """Return the whole HTTP API."""
    own = route_table(parts, _ignore_change if front is None else front.pools_changed)
    table = RouteTable(*own.routes, *(() if front is None else front.routes(parts)))
    keys = None if parts.api_keys is None else parts.api_keys.current
    changes = DatabaseChanges(parts.repository, parts.new_id, parts.clock)
    portal = PortalScope(parts.repository, parts.portal)
    api = ApiApp(documented(table, openapi(table)), RequestGuard(parts.api_token, keys), changes, portal)

    async def database() -> CheckResult:
        pools = await parts.repository.list_pools()
        return CheckResult(True, f"answers, with {len(pools)} pools")

    def writes() -> CheckResult:
        trouble = parts.repository.trouble()
        return CheckResult(trouble is None, trouble or "the database accepts writes")

    checks: dict[str, Check] = {"database": database, "writes": writes}
    return Probes(parts.metrics, checks, before_metrics=parts.health.fresh).wrap(
        api if front is None else front.wrap(api)
    )


def _ignore_change() -> None:
    """Do nothing: routers notice the change when they read their configuration."""


def route_table(parts: JobsParts, pools_changed: Callable[[], None] = _ignore_change) -> RouteTable:
    """Return all routes."""
    repository, new_id, clock = parts.repository, parts.new_id, parts.clock
    publisher = publisher_for(parts.fan_out, repository, clock)
    schemas = EventSchemas(repository, clock, parts.unknown_event_types)

    async def refusal(target: str) -> str | None:
        if target.startswith(MESSAGE_PREFIXES):
            return parts.messages.refusal(target)
        return await parts.courier.refusal(target)

    return RouteTable(
        *routes_of(
            EventRoutes(repository, publisher, schemas, new_id, clock, parts.spans),
            JobRoutes(repository, parts.courier.secret_box, new_id, clock),
            JobDecisionRoutes(repository, clock),
            SubscriptionRoutes(repository, parts.courier.secret_box, new_id, clock, pools_changed, refusal),
            SigningSecretRoutes(repository, parts.courier.secret_box),
            SubscriptionStateRoutes(repository, parts.health),
            TrialRoutes(repository, parts.courier, parts.messages, new_id, clock),
            EventTypeRoutes(repository, schemas),
            FeedRoutes(repository, parts.feeds),
            PoolRoutes(repository, pools_changed),
            RouterConfigRoutes(repository, parts.queue_uri, parts.default_pool, queue_per_pool=parts.queue_per_pool),
            PortalLinkRoutes(repository, parts.portal, has_credentials=parts.has_credentials),
            ChangeRoutes(repository),
            CallerRoutes(),
            HealthRoutes(parts.health),
            ProcessRoute(parts.processor, parts.tokens, clock),
        )
    )


def openapi(table: RouteTable) -> Json:
    """Return the OpenAPI document of the routes."""
    return openapi_document(table, "Penstock", _DESCRIPTION)

"""The health of a whole Penstock in the API: one verdict with its reasons, the parts, and the subscriptions."""

from enum import StrEnum

import msgspec

from penstock.client.types.cluster import ClusterView


class HealthStatus(StrEnum):
    """The verdict, best first: at WARNING an operator should look, at DEGRADED events are not delivered."""

    HEALTHY = "HEALTHY"
    WARNING = "WARNING"
    DEGRADED = "DEGRADED"


class HealthCode(StrEnum):
    """The kind of a reason."""

    DATABASE = "DATABASE"
    DISK = "DISK"
    PART_UNREACHABLE = "PART_UNREACHABLE"
    QUEUE_UNREACHABLE = "QUEUE_UNREACHABLE"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    POOL_FULL = "POOL_FULL"
    ROUTER_WARNINGS = "ROUTER_WARNINGS"
    PIPELINE_FAILING = "PIPELINE_FAILING"
    PIPELINE_LAGS = "PIPELINE_LAGS"
    OLDEST_DUE = "OLDEST_DUE"
    GROUPS_BLOCKED = "GROUPS_BLOCKED"
    SUBSCRIPTION_FAILING = "SUBSCRIPTION_FAILING"
    BREAKER_OPEN = "BREAKER_OPEN"


class HealthReason(msgspec.Struct, frozen=True, rename="camel"):
    """Why the verdict is not HEALTHY: a sentence, what to do, and the place on the web page."""

    code: HealthCode
    status: HealthStatus
    message: str
    remedy: str
    link: str
    subscription_id: str | None = None


class PartHealth(msgspec.Struct, frozen=True):
    """A part of Penstock, where it is, and how it is."""

    name: str
    url: str
    status: HealthStatus
    detail: str


class SubscriptionHealth(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How a subscription stands: its attempts of the last five minutes, what waits, and what holds it up.

    `backlog` counts its unfinished jobs, up to `backlogLimit` of each kind; those planned for later do not count.
    """

    id: str
    name: str
    tenant: str
    target: str
    status: HealthStatus
    paused: bool
    delivered: int
    failed: int
    deferred: int
    per_minute: float
    p50_ms: float | None
    p99_ms: float | None
    backlog: int
    backlog_limit: int
    oldest_due_s: float | None
    blocked_groups: int
    retrying_groups: int
    breaker: str


class SubscriptionReport(msgspec.Struct, frozen=True, rename="camel"):
    """How one subscription stands, and why it is not HEALTHY."""

    health: SubscriptionHealth
    reasons: list[HealthReason]


class HealthReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The health of everything: the verdict, its reasons (the worst first), the parts, the worst subscriptions."""

    status: HealthStatus
    summary: str
    at_ms: int
    reasons: list[HealthReason]
    parts: list[PartHealth]
    backlog: int
    oldest_due_s: float | None
    pipeline_lag: int | None
    blocked_groups: int
    subscriptions: list[SubscriptionHealth]
    more_subscriptions: int
    """How many subscriptions the list leaves out."""
    cluster: ClusterView | None = None
    """The nodes that serve the queues; None on a single machine."""

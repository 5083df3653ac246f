"""The verdict on a whole Penstock (HEALTH-1): rules from what was read to reasons; `watch.py` reads.

Every reason is a sentence with a remedy and a place on the web page. Nothing here asks a clock or a database.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.client.types import (
    ClusterView,
    HealthCode,
    HealthReason,
    HealthReport,
    HealthStatus,
    PartHealth,
    SubscriptionHealth,
)
from penstock.delivery import BreakerView, Undeliverable, parse_target
from penstock.domain.breaker import BreakerState
from penstock.domain.limits import MIB, MINUTE_MS
from penstock.domain.subscription import Subscription
from penstock.edge.disk_space import LEAST_FREE_BYTES
from penstock.events.statistics import Minute
from penstock.events.store import COUNTED_JOBS, SubscriptionLoad

WINDOW_MINUTES = 5
"""Deliveries of the last minutes, the present one included, say whether a subscription fails."""
MIN_JUDGED = 10
MIN_SUCCESS_RATE = 0.9
ALL_FAILED = 2
"""A subscription that delivered nothing fails after this many failures."""
LATE_S, VERY_LATE_S = 60.0, 300.0
NEARLY_FULL_BYTES = 4 * LEAST_FREE_BYTES
MOST_OF_ERROR = 200
MAX_REASONS = 50
MAX_LISTED = 50

_SEVERITY = {HealthStatus.HEALTHY: 0, HealthStatus.WARNING: 1, HealthStatus.DEGRADED: 2}
_BREAKER_SEVERITY = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class PartStates(msgspec.Struct, frozen=True):
    """What the other parts say: how each is, why not HEALTHY, breakers of subscribers, rows that Spark has to read."""

    parts: tuple[PartHealth, ...] = ()
    reasons: tuple[HealthReason, ...] = ()
    breakers: tuple[BreakerView, ...] = ()
    pipeline_lag: int | None = None
    cluster: ClusterView | None = None


class HealthFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a verdict is made of."""

    now_ms: int
    subscriptions: Sequence[Subscription]
    loads: Mapping[str, SubscriptionLoad]
    recent: Mapping[str, Minute]
    """The deliveries of the last minutes by subscription."""
    recent_since_ms: int
    """When these minutes begin, or when the first delivery was made if that is later."""
    breakers: Sequence[BreakerView]
    states: PartStates
    waits: Mapping[str | None, int]
    """Since when the oldest job waits that nothing holds, by subscription; an event that has no jobs yet under None."""
    last_errors: Mapping[str, str]
    """Why the newest failed delivery failed, of subscriptions that fail."""
    trouble: str | None
    free_bytes: int | None


def assess(facts: HealthFacts) -> HealthReport:
    """Return the verdict, the worst reasons and the worst subscriptions first."""
    breakers = _by_endpoint(facts.breakers)
    found = [_subscription(each, facts, breakers) for each in facts.subscriptions]
    reasons = [*_database(facts), *facts.states.reasons, *_waiting(facts)]
    reasons += [reason for _, about in found for reason in about]
    reasons.sort(key=lambda reason: -_SEVERITY[reason.status])
    status = reasons[0].status if reasons else HealthStatus.HEALTHY
    shown = sorted((each for each, _ in found), key=_worst_first)
    return HealthReport(
        status=status,
        summary=_summary(reasons),
        at_ms=facts.now_ms,
        reasons=reasons,
        parts=list(facts.states.parts),
        backlog=sum(load.backlog for load in facts.loads.values()),
        oldest_due_s=_age_s(_oldest_due_ms(facts), facts.now_ms),
        pipeline_lag=facts.states.pipeline_lag,
        blocked_groups=sum(load.blocked_groups for load in facts.loads.values()),
        subscriptions=shown,
        more_subscriptions=0,
        cluster=facts.states.cluster,
    )


def _oldest_due_ms(facts: HealthFacts) -> int | None:
    """Return since when the oldest is due: never younger than what the report says of a subscription."""
    found = [*facts.waits.values(), *(load.due_since_ms for load in facts.loads.values())]
    return min((each for each in found if each is not None), default=None)


def shortened(report: HealthReport) -> HealthReport:
    """Return a report with the worst reasons and subscriptions only."""
    listed, left = report.subscriptions[:MAX_LISTED], report.subscriptions[MAX_LISTED:]
    reasons = report.reasons[:MAX_REASONS]
    return msgspec.structs.replace(report, reasons=reasons, subscriptions=listed, more_subscriptions=len(left))


def _summary(reasons: Sequence[HealthReason]) -> str:
    if not reasons:
        return "no problems"
    more = len(reasons) - 1
    return reasons[0].message + (f", and {more} more reason{'s' if more > 1 else ''}" if more else "")


def _database(facts: HealthFacts) -> Iterable[HealthReason]:
    if facts.trouble is not None:
        yield HealthReason(
            HealthCode.DATABASE,
            HealthStatus.DEGRADED,
            f"the database takes no changes: {facts.trouble}",
            "free some space, or see that the database answers; what was accepted is kept",
            "#/",
        )
    free = facts.free_bytes
    if free is not None and free < NEARLY_FULL_BYTES:
        worst = free < LEAST_FREE_BYTES
        yield HealthReason(
            HealthCode.DISK,
            HealthStatus.DEGRADED if worst else HealthStatus.WARNING,
            f"the disk of the data directory has {free // MIB} MiB free",
            "free some space, or move the data directory to a larger disk",
            "#/",
        )


def _waiting(facts: HealthFacts) -> Iterable[HealthReason]:
    """Return what waits too long and belongs to no subscription: events without jobs, jobs created directly."""
    known = {subscription.id for subscription in facts.subscriptions}
    age_s = _age_s(facts.waits.get(None), facts.now_ms) or 0.0
    if age_s > LATE_S:
        yield HealthReason(
            HealthCode.OLDEST_DUE,
            _lateness(age_s),
            f"the oldest event without jobs has waited {_span(age_s)}",
            "see that the scheduler runs, or Spark's pipeline, whichever creates them",
            "#/pipeline",
        )
    others = [since_ms for key, since_ms in facts.waits.items() if key is not None and key not in known]
    age_s = _age_s(min(others, default=None), facts.now_ms) or 0.0
    if age_s > LATE_S:
        yield HealthReason(
            HealthCode.OLDEST_DUE,
            _lateness(age_s),
            f"the oldest job without a subscription has waited {_span(age_s)}",
            "if its endpoint can take more, give its pool a larger concurrency, or rate: `penstock pools set`",
            "#/jobs?status=PENDING",
        )


def _lateness(age_s: float) -> HealthStatus:
    return HealthStatus.DEGRADED if age_s > VERY_LATE_S else HealthStatus.WARNING


def _subscription(
    subscription: Subscription, facts: HealthFacts, breakers: Mapping[str, BreakerState]
) -> tuple[SubscriptionHealth, list[HealthReason]]:
    load = facts.loads.get(subscription.id, SubscriptionLoad())
    recent = facts.recent.get(subscription.id)
    breaker = _breaker_of(subscription.target, breakers)
    reasons = [*_subscription_reasons(subscription, load, recent, breaker, facts)]
    worst = max((reason.status for reason in reasons), key=_SEVERITY.__getitem__, default=HealthStatus.HEALTHY)
    failed = 0 if recent is None else recent.failed + recent.refused
    return SubscriptionHealth(
        id=subscription.id,
        name=subscription.name,
        tenant=subscription.tenant,
        target=subscription.target,
        status=worst,
        paused=subscription.paused,
        delivered=0 if recent is None else recent.delivered,
        failed=failed,
        deferred=0 if recent is None else recent.deferred,
        per_minute=0.0 if recent is None else recent.delivered / _minutes(facts),
        p50_ms=None if recent is None else recent.latency_ms(0.5),
        p99_ms=None if recent is None else recent.latency_ms(0.99),
        backlog=load.backlog,
        backlog_limit=COUNTED_JOBS,
        oldest_due_s=_age_s(load.due_since_ms, facts.now_ms),
        blocked_groups=load.blocked_groups,
        retrying_groups=load.retrying_groups,
        breaker=breaker,
    ), reasons


def _subscription_reasons(
    subscription: Subscription, load: SubscriptionLoad, recent: Minute | None, breaker: BreakerState, facts: HealthFacts
) -> Iterable[HealthReason]:
    name = subscription.name

    def reason(code: HealthCode, status: HealthStatus, message: str, remedy: str) -> HealthReason:
        link = f"#/subscriptions/{subscription.id}"
        return HealthReason(code, status, message, remedy, link, subscription.id)

    if load.blocked_groups:
        age_s = _age_s(load.blocked_since_ms, facts.now_ms) or 0.0
        groups = "1 key waits" if load.blocked_groups == 1 else f"{load.blocked_groups} keys wait"
        yield reason(
            HealthCode.GROUPS_BLOCKED,
            HealthStatus.DEGRADED,
            f"{groups} for a job of {name} that was given up, the longest for {_span(age_s)}",
            f"`penstock groups list --subscription {name}`, then `penstock groups retry` or `skip`",
        )
    if subscription.paused:
        return
    waits = (load.waits_since_ms, facts.waits.get(subscription.id))
    late_s = _age_s(min((each for each in waits if each is not None), default=None), facts.now_ms) or 0.0
    if late_s > LATE_S:
        yield reason(
            HealthCode.OLDEST_DUE,
            _lateness(late_s),
            f"the oldest job of {name} that is due has waited {_span(late_s)}",
            _remedy_of_lateness(subscription, recent, breaker),
        )
    if recent is not None and is_failing(recent):
        failed = recent.failed + recent.refused
        tried = failed + recent.delivered
        error = facts.last_errors.get(subscription.id)
        why = "" if error is None else f", the newest with: {error[:MOST_OF_ERROR]}"
        yield reason(
            HealthCode.SUBSCRIPTION_FAILING,
            HealthStatus.DEGRADED,
            f"{failed} of the last {tried} deliveries to {name} failed{why}",
            f"`penstock subscriptions test {name}` shows the endpoint's answer; failed deliveries are retried",
        )
    if breaker is not BreakerState.CLOSED:
        yield reason(
            HealthCode.BREAKER_OPEN,
            HealthStatus.WARNING,
            f"the circuit breaker of {name}'s endpoint is {breaker}",
            "the endpoint is tried again every few seconds; the breaker closes when it answers",
        )


def _remedy_of_lateness(subscription: Subscription, recent: Minute | None, breaker: BreakerState) -> str:
    if breaker is not BreakerState.CLOSED or (recent is not None and is_failing(recent)):
        return "its jobs go on when its endpoint answers with success again"
    if recent is not None and recent.deferred > recent.delivered:
        return "its endpoint puts most deliveries off (429, or `ack: false`): it has to take more"
    pool = f"`penstock pools set {subscription.pool_code} --concurrency N`"
    return f"if the subscriber can take more, give its pool a larger concurrency, or rate: {pool}"


def _minutes(facts: HealthFacts) -> float:
    """Return how many minutes the recent deliveries took, at least one."""
    return max(1.0, (facts.now_ms - facts.recent_since_ms) / MINUTE_MS)


def is_failing(recent: Minute) -> bool:
    """Return whether too many of a subscription's deliveries failed."""
    rate = recent.success_rate
    tried = recent.delivered + recent.failed + recent.refused
    if rate is None:
        return False
    return rate < MIN_SUCCESS_RATE if tried >= MIN_JUDGED else recent.delivered == 0 and tried >= ALL_FAILED


def _by_endpoint(views: Iterable[BreakerView]) -> dict[str, BreakerState]:
    states: dict[str, BreakerState] = {}
    for view in views:
        state = BreakerState(view.state)
        known = states.get(view.endpoint, BreakerState.CLOSED)
        states[view.endpoint] = max(known, state, key=_BREAKER_SEVERITY.__getitem__)
    return states


def _breaker_of(target: str, states: Mapping[str, BreakerState]) -> BreakerState:
    """Return the state of an endpoint's breaker, or of its host's if that is worse."""
    try:
        endpoint = parse_target(target).endpoint
    except Undeliverable:
        return BreakerState.CLOSED
    host = "/".join(endpoint.split("/", 3)[:3])
    found = (states.get(endpoint, BreakerState.CLOSED), states.get(host, BreakerState.CLOSED))
    return max(found, key=_BREAKER_SEVERITY.__getitem__)


def _worst_first(each: SubscriptionHealth) -> tuple[int, int, float, int, str]:
    return -_SEVERITY[each.status], -each.blocked_groups, -(each.oldest_due_s or 0.0), -each.backlog, each.name


def _age_s(since_ms: int | None, now_ms: int) -> float | None:
    return None if since_ms is None else max(0, now_ms - since_ms) / 1000


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"

"""The verdict: what makes a Penstock WARNING or DEGRADED, in which words, and in which order."""

from typing import Any

import pytest

from penstock.client.types import HealthCode, HealthReason, HealthStatus
from penstock.delivery import BreakerView
from penstock.domain.limits import MIB
from penstock.domain.subscription import Subscription
from penstock.events.api.health.report import HealthFacts, PartStates, assess
from penstock.events.api.health.watch import DeliveryCounts
from penstock.events.statistics import Dimension, Minute
from penstock.events.store import SubscriptionLoad

NOW_MS = 1_700_000_000_000
BILLING = Subscription(id="s1", name="billing", pattern="orders:**", target="https://billing.example/hook?key=1")


def facts(**given: Any) -> HealthFacts:
    fine: dict[str, Any] = {
        "now_ms": NOW_MS,
        "subscriptions": [BILLING],
        "loads": {},
        "recent": {},
        "recent_since_ms": NOW_MS - 300_000,
        "breakers": [],
        "states": PartStates(),
        "waits": {},
        "last_errors": {},
        "trouble": None,
        "free_bytes": None,
    }
    return HealthFacts(**{**fine, **given})


def minute(**counts: Any) -> Minute:
    return Minute(minute_ms=NOW_MS, by=Dimension.SUBSCRIPTION, name="s1", **counts)


def breaker(endpoint: str, state: str = "OPEN") -> BreakerView:
    return BreakerView(endpoint, state, 10, 10, 1.0, NOW_MS, 3)


def test_nothing_wrong_is_healthy() -> None:
    report = assess(facts(recent={"s1": minute(delivered=100, failed=5)}, free_bytes=10_000 * MIB))
    assert (report.status, report.summary, report.reasons) == (HealthStatus.HEALTHY, "no problems", [])
    (billing,) = report.subscriptions
    assert (billing.status, billing.breaker, billing.per_minute) == (HealthStatus.HEALTHY, "CLOSED", 20)


@pytest.mark.parametrize(("since_s", "per_minute"), [(300, 20), (240, 25), (90, 1000 / 15), (60, 100), (5, 100)])
def test_the_rate_is_that_of_the_time_since_the_first_delivery(since_s: int, per_minute: float) -> None:
    since_ms = NOW_MS - since_s * 1000
    report = assess(facts(recent={"s1": minute(delivered=100)}, recent_since_ms=since_ms))
    assert report.subscriptions[0].per_minute == pytest.approx(per_minute)


@pytest.mark.parametrize(
    ("given", "code", "status", "words"),
    [
        (
            {"loads": {"s1": SubscriptionLoad(blocked_groups=3, blocked_since_ms=NOW_MS - 600_000)}},
            HealthCode.GROUPS_BLOCKED,
            HealthStatus.DEGRADED,
            "3 keys wait for a job of billing that was given up, the longest for 10 min",
        ),
        (
            {"recent": {"s1": minute(delivered=8, failed=1, refused=1)}},
            HealthCode.SUBSCRIPTION_FAILING,
            HealthStatus.DEGRADED,
            "2 of the last 10 deliveries to billing failed",
        ),
        (
            {"recent": {"s1": minute(failed=2)}},
            HealthCode.SUBSCRIPTION_FAILING,
            HealthStatus.DEGRADED,
            "2 of the last 2 deliveries to billing failed",
        ),
        (
            {"recent": {"s1": minute(failed=2)}, "last_errors": {"s1": "answered 503"}},
            HealthCode.SUBSCRIPTION_FAILING,
            HealthStatus.DEGRADED,
            "2 of the last 2 deliveries to billing failed, the newest with: answered 503",
        ),
        (
            {"breakers": [breaker("https://billing.example/hook")]},
            HealthCode.BREAKER_OPEN,
            HealthStatus.WARNING,
            "the circuit breaker of billing's endpoint is OPEN",
        ),
        (
            {"breakers": [breaker("https://billing.example")]},
            HealthCode.BREAKER_OPEN,
            HealthStatus.WARNING,
            "the circuit breaker of billing's endpoint is OPEN",
        ),
        (
            {"waits": {None: NOW_MS - 61_000}},
            HealthCode.OLDEST_DUE,
            HealthStatus.WARNING,
            "the oldest event without jobs has waited 61 s",
        ),
        (
            {"waits": {"": NOW_MS - 301_000}},
            HealthCode.OLDEST_DUE,
            HealthStatus.DEGRADED,
            "the oldest job without a subscription has waited 5 min",
        ),
        (
            {"waits": {"s1": NOW_MS - 91_000}},
            HealthCode.OLDEST_DUE,
            HealthStatus.WARNING,
            "the oldest job of billing that is due has waited 91 s",
        ),
        (
            {"free_bytes": 300 * MIB},
            HealthCode.DISK,
            HealthStatus.WARNING,
            "the disk of the data directory has 300 MiB free",
        ),
        (
            {"trouble": "the disk is full"},
            HealthCode.DATABASE,
            HealthStatus.DEGRADED,
            "the database takes no changes: the disk is full",
        ),
    ],
)
def test_each_trouble_is_a_sentence_with_a_remedy(
    given: dict[str, Any], code: HealthCode, status: HealthStatus, words: str
) -> None:
    report = assess(facts(**given))
    (reason,) = report.reasons
    assert (reason.code, reason.status, reason.message) == (code, status, words)
    assert (report.status, report.summary) == (status, words)
    assert reason.remedy
    assert reason.link.startswith("#/")


@pytest.mark.parametrize(
    "given",
    [
        {"recent": {"s1": minute(failed=1)}},
        {"recent": {"s1": minute(delivered=9, failed=1)}},
        {"recent": {"s1": minute(deferred=100)}},
        {
            "breakers": [
                breaker("https://another.example:443/hook"),
                breaker("https://billing.example/hook", "CLOSED"),
            ]
        },
        {"loads": {"s1": SubscriptionLoad(ready=500, retrying_groups=3)}},
        {"waits": {None: NOW_MS - 59_000, "": NOW_MS - 59_000, "s1": NOW_MS - 59_000}},
        {"loads": {"s1": SubscriptionLoad(ready=5, due_since_ms=NOW_MS - 500_000)}},
    ],
)
def test_what_is_usual_is_no_reason(given: dict[str, Any]) -> None:
    assert assess(facts(**given)).status is HealthStatus.HEALTHY


def test_a_paused_subscription_is_not_failing_but_may_be_blocked() -> None:
    paused = Subscription(id="s1", name="billing", pattern="a", target="https://a.example/", paused=True)
    load = SubscriptionLoad(blocked_groups=1, blocked_since_ms=NOW_MS)
    report = assess(facts(subscriptions=[paused], recent={"s1": minute(failed=9)}, loads={"s1": load}))
    assert [reason.code for reason in report.reasons] == [HealthCode.GROUPS_BLOCKED]


def test_the_worst_reasons_and_subscriptions_come_first() -> None:
    quiet = Subscription(id="s0", name="a-quiet-one", pattern="a", target="https://quiet.example/")
    lags = HealthReason(HealthCode.PIPELINE_LAGS, HealthStatus.WARNING, "20000 rows wait", "wait", "#/pipeline")
    report = assess(
        facts(
            subscriptions=[quiet, BILLING],
            recent={"s1": minute(failed=5)},
            states=PartStates(reasons=(lags,), pipeline_lag=20_000),
        )
    )
    assert [reason.status for reason in report.reasons] == [HealthStatus.DEGRADED, HealthStatus.WARNING]
    assert [each.name for each in report.subscriptions] == ["billing", "a-quiet-one"]
    assert (report.pipeline_lag, report.summary.endswith(", and 1 more reason")) == (20_000, True)


def test_deliveries_are_counted_once_while_their_minute_grows() -> None:
    counts = DeliveryCounts()
    counts.count([minute(delivered=3, failed=1)])
    counts.count(
        [minute(delivered=5, failed=1), Minute(minute_ms=NOW_MS + 60_000, by=Dimension.SUBSCRIPTION, name="s1")]
    )
    counts.count([Minute(minute_ms=NOW_MS + 60_000, by=Dimension.SUBSCRIPTION, name="s1", delivered=2)])
    assert counts.totals["s1"] == (7, 1, 0, 0)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({}, "larger concurrency, or rate: `penstock pools set billing --concurrency N`"),
        ({"recent": {"s1": minute(delivered=100)}}, "larger concurrency, or rate"),
        ({"recent": {"s1": minute(delivered=100, deferred=101)}}, "puts most deliveries off"),
        ({"recent": {"s1": minute(failed=20)}}, "when its endpoint answers"),
        ({"breakers": [breaker("https://billing.example/hook")]}, "when its endpoint answers"),
    ],
)
def test_a_larger_pool_is_no_remedy_for_an_endpoint_that_fails_or_puts_off(given: dict[str, Any], remedy: str) -> None:
    since_ms = NOW_MS - 600_000
    late = {"loads": {"s1": SubscriptionLoad(waits_since_ms=since_ms)}}
    report = assess(facts(**late, **given))
    (reason,) = [each for each in report.reasons if each.code is HealthCode.OLDEST_DUE]
    assert remedy in reason.remedy


def test_the_oldest_that_is_due_is_never_younger_than_that_of_a_subscription() -> None:
    loads = {"s1": SubscriptionLoad(ready=5, due_since_ms=NOW_MS - 29_000)}
    for waits in ({}, {None: NOW_MS - 3_000}):
        report = assess(facts(loads=loads, waits=waits))
        assert (report.oldest_due_s, report.subscriptions[0].oldest_due_s) == (29, 29)
    assert assess(facts()).oldest_due_s is None


def test_each_subscription_that_is_late_has_a_reason_of_its_own() -> None:
    slow = Subscription(id="s2", name="slow", pattern="a", target="https://slow.example/")
    loads = {
        "s1": SubscriptionLoad(ready=5, waits_since_ms=NOW_MS - 500_000),
        "s2": SubscriptionLoad(ready=5, waits_since_ms=NOW_MS - 70_000),
    }
    report = assess(facts(subscriptions=[BILLING, slow], loads=loads, waits={"s1": NOW_MS - 510_000}))
    assert [(reason.subscription_id, reason.message) for reason in report.reasons] == [
        ("s1", "the oldest job of billing that is due has waited 8 min"),
        ("s2", "the oldest job of slow that is due has waited 70 s"),
    ]

"""Alerts: which conditions become events, how often, and when they wait."""

from datetime import time
from typing import Any

import pytest

from penstock.client.types import HealthCode, HealthReason, HealthStatus
from penstock.domain.subscription import Subscription
from penstock.events.api.health.alerts import AlertRules, AlertState, QuietHours

NOON_MS = 1_700_049_600_000  # 12:00 UTC
HOUR_MS = 3_600_000
BILLING = Subscription(id="s1", name="billing", pattern="orders:**", target="https://billing.example/", tenant="acme")
KNOWN = {"s1": BILLING}


def reason(code: HealthCode, message: str = "something is wrong", subscription: str | None = None) -> HealthReason:
    return HealthReason(code, HealthStatus.DEGRADED, message, "do this", "#/x", subscription)


FAILING = reason(HealthCode.SUBSCRIPTION_FAILING, "3 of the last 3 deliveries to billing failed", "s1")
DISK = reason(HealthCode.DISK)


def state(**rules: Any) -> AlertState:
    return AlertState(AlertRules(**rules))


@pytest.mark.parametrize(
    ("code", "subscription", "kind"),
    [
        (HealthCode.SUBSCRIPTION_FAILING, "s1", "penstock:subscription.failing"),
        (HealthCode.GROUPS_BLOCKED, "s1", "penstock:group.blocked"),
        (HealthCode.QUEUE_UNREACHABLE, None, "penstock:queue.unreachable"),
        (HealthCode.PART_UNREACHABLE, None, "penstock:node.lost"),
        (HealthCode.DISK, None, "penstock:warning.raised"),
        (HealthCode.BREAKER_OPEN, "s1", "penstock:warning.raised"),
    ],
)
def test_every_condition_has_a_type(code: HealthCode, subscription: str | None, kind: str) -> None:
    (alert,) = state().due([reason(code, subscription=subscription)], KNOWN, NOON_MS)
    assert (alert.type, alert.status) == (kind, "DEGRADED")
    assert alert.text == "DEGRADED: something is wrong. do this"
    assert (alert.subscription, alert.tenant) == (("billing", "acme") if subscription else (None, ""))


def test_a_condition_is_reported_once_then_after_the_interval_and_when_it_ends() -> None:
    alerts = state(repeat_s=3600)
    (first,) = alerts.due([FAILING, DISK][:1], KNOWN, NOON_MS)
    changed = reason(HealthCode.SUBSCRIPTION_FAILING, "9 of the last 9 deliveries to billing failed", "s1")
    assert alerts.due([changed], KNOWN, NOON_MS + 10_000) == []
    (again,) = alerts.due([changed], KNOWN, NOON_MS + HOUR_MS)
    assert (again.subject, again.message) == (first.subject, changed.message)
    assert again.key != first.key
    (over,) = alerts.due([], KNOWN, NOON_MS + HOUR_MS + 10_000)
    assert (over.type, over.subject, over.status) == ("penstock:subscription.recovered", first.subject, "HEALTHY")
    assert alerts.due([], KNOWN, NOON_MS + HOUR_MS + 20_000) == []


def test_what_is_not_a_subscription_is_cleared() -> None:
    alerts = state()
    alerts.due([DISK], KNOWN, NOON_MS)
    (over,) = alerts.due([], KNOWN, NOON_MS + 1)
    assert (over.type, over.text) == ("penstock:warning.cleared", "no longer: something is wrong")


def test_another_process_gives_the_same_condition_the_same_id() -> None:
    (one,), (other,) = (state().due([FAILING], KNOWN, NOON_MS + shift) for shift in (0, 5000))
    assert (one.type, one.subject, one.key) == (other.type, other.subject, other.key)


def test_in_quiet_hours_only_what_stops_everything_is_reported() -> None:
    alerts = state(quiet=QuietHours(time(22), time(13)))
    lost = reason(HealthCode.PART_UNREACHABLE)
    assert [alert.type for alert in alerts.due([FAILING, DISK, lost], KNOWN, NOON_MS)] == ["penstock:node.lost"]
    later = alerts.due([FAILING, lost], KNOWN, NOON_MS + HOUR_MS)
    assert "penstock:subscription.failing" in [alert.type for alert in later]
    assert not [alert for alert in later if "DISK" in alert.subject], "it ended before anyone was told"


@pytest.mark.parametrize(
    ("begin", "end", "zone", "quiet"),
    [
        (0, 0, "UTC", False),
        (11, 13, "UTC", True),
        (22, 7, "UTC", False),
        (22, 13, "UTC", True),
        (13, 14, "Europe/Berlin", True),
        (12, 13, "Europe/Berlin", False),
    ],
)
def test_quiet_hours_are_of_a_time_zone_and_may_cross_midnight(begin: int, end: int, zone: str, quiet: bool) -> None:
    assert QuietHours(time(begin), time(end), zone).include(NOON_MS) is quiet

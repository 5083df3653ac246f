"""Operational alerts: Penstock's own events, made from the verdict and delivered like any other event (ALERT-1).

Only subscriptions whose pattern begins with `penstock:` get them, with either engine. The rule is pure; the watch asks
for the verdict every few seconds and publishes. An alert's id names its condition and a period as long as the interval
of repetition, so that several API processes, or one that was restarted, send it once.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import msgspec

from penstock.client.types import HealthCode, HealthReason
from penstock.domain.errors import PenstockError
from penstock.domain.event import StoredEvent
from penstock.domain.limits import SECOND_MS
from penstock.domain.subscription import Subscription
from penstock.edge.clock import Clock, wall_ms
from penstock.edge.pause import Pause
from penstock.events.api.health.watch import HealthWatch
from penstock.events.fan_out import FanOut
from penstock.events.store import JobRepository

log = logging.getLogger(__name__)

PREFIX = "penstock:"
FAILING = f"{PREFIX}subscription.failing"
RECOVERED = f"{PREFIX}subscription.recovered"
BLOCKED = f"{PREFIX}group.blocked"
UNREACHABLE = f"{PREFIX}queue.unreachable"
LOST = f"{PREFIX}node.lost"
RAISED = f"{PREFIX}warning.raised"
CLEARED = f"{PREFIX}warning.cleared"
_TYPES = {
    HealthCode.SUBSCRIPTION_FAILING: FAILING,
    HealthCode.GROUPS_BLOCKED: BLOCKED,
    HealthCode.QUEUE_UNREACHABLE: UNREACHABLE,
    HealthCode.PART_UNREACHABLE: LOST,
}
_AT_ANY_HOUR = frozenset({UNREACHABLE, LOST})
_NOT_SAID = frozenset({"type", "key", "tenant"})
_encode = msgspec.json.Encoder().encode


class QuietHours(msgspec.Struct, frozen=True):
    """A time of day at which alerts about single subscriptions and warnings wait; none if both ends are the same."""

    begin: time = time(0)
    end: time = time(0)
    zone: str = "UTC"

    def include(self, moment_ms: int) -> bool:
        """Return whether a moment is in the quiet hours."""
        now = datetime.fromtimestamp(moment_ms / SECOND_MS, UTC).astimezone(ZoneInfo(self.zone)).time()
        if self.begin <= self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end


class AlertRules(msgspec.Struct, frozen=True, kw_only=True):
    """How often the verdict is asked for, when an alert is repeated, and when alerts wait."""

    check_s: float = 10.0
    repeat_s: float = 3600.0
    quiet: QuietHours = QuietHours()


class Alert(msgspec.Struct, frozen=True):
    """What an alert says. `text` is the whole of it, for chats; it is all that a body of the format `slack` has."""

    type: str
    subject: str
    key: str
    """Tells apart the times that the same condition is reported."""
    status: str
    text: str
    message: str
    remedy: str
    link: str
    subscription: str | None = None
    tenant: str = ""
    """The subscription's tenant, who gets the alert as the operator does."""


class AlertState:
    """Which conditions were reported, and when."""

    def __init__(self, rules: AlertRules) -> None:
        self._rules = rules
        self._sent: dict[tuple[str, str], tuple[int, Alert]] = {}

    def due(self, reasons: Iterable[HealthReason], known: Mapping[str, Subscription], now_ms: int) -> list[Alert]:
        """Return the alerts to send now, and remember them as sent."""
        quiet = self._rules.quiet.include(now_ms)
        repeat_ms = round(self._rules.repeat_s * SECOND_MS)
        found = {(alert.type, alert.subject): alert for alert in (self._alert(each, known, now_ms) for each in reasons)}
        alerts: list[Alert] = []
        for condition, alert in found.items():
            sent_ms, _ = self._sent.get(condition, (-repeat_ms, alert))
            if now_ms - sent_ms >= repeat_ms and not (quiet and alert.type not in _AT_ANY_HOUR):
                self._sent[condition] = now_ms, alert
                alerts.append(alert)
        for condition in [each for each in self._sent if each not in found]:
            _, ended = self._sent.pop(condition)
            alerts.append(_over(ended))
        return alerts

    def _alert(self, reason: HealthReason, known: Mapping[str, Subscription], now_ms: int) -> Alert:
        kind = _TYPES.get(reason.code, RAISED)
        about = known.get(reason.subscription_id or "")
        # A message has counts and ages, which change all the time; the key must stay the same.
        subject = about.name if about is not None else (reason.link if kind is UNREACHABLE else reason.code)
        period = now_ms // round(self._rules.repeat_s * SECOND_MS)
        text = f"{reason.status}: {reason.message}. {reason.remedy}"
        return Alert(
            kind,
            f"{reason.code}/{subject}",
            str(period),
            reason.status,
            text,
            reason.message,
            reason.remedy,
            reason.link,
            None if about is None else about.name,
            "" if about is None else about.tenant,
        )


def _over(alert: Alert) -> Alert:
    message = f"no longer: {alert.message}"
    return msgspec.structs.replace(
        alert,
        type=RECOVERED if alert.type == FAILING else CLEARED,
        key=f"{alert.key}/over",
        status="HEALTHY",
        text=message,
        message=message,
        remedy="",
    )


class AlertWatch:
    """Publishes alerts while there are subscriptions to them."""

    def __init__(
        self,
        repository: JobRepository,
        health: HealthWatch,
        rules: AlertRules,
        clock: Clock,
        new_id: Callable[[], str],
        pause: Pause,
    ) -> None:
        self._repository = repository
        self._health = health
        self._rules = rules
        self._clock = clock
        self._new_id = new_id
        self._pause = pause
        self._state = AlertState(rules)

    async def run(self) -> None:
        """Look until cancelled; what fails is logged and tried again."""
        while True:
            await self._pause(self._rules.check_s)
            try:
                await self.look()
            except PenstockError as error:
                # Those that were stored are known by their ids.
                self._state = AlertState(self._rules)
                log.warning("alerts could not be published; they are tried again", extra={"reason": str(error)})

    async def look(self) -> None:
        """Publish the alerts that are due."""
        subscriptions = await self._repository.list_subscriptions()
        wanting = [each for each in subscriptions if is_alert_subscription(each)]
        if not wanting:
            return
        report = await self._health.fresh()
        # An alert about a subscription to alerts would cause the next one.
        own = {each.id for each in wanting}
        reasons = [reason for reason in report.reasons if reason.subscription_id not in own]
        known = {each.id: each for each in subscriptions}
        alerts = self._state.due(reasons, known, wall_ms(self._clock))
        tenants = {each.tenant for each in wanting}
        # An operator's subscriptions have no tenant and get every alert, others those of their tenant.
        events = [self._event(alert, tenant) for alert in alerts for tenant in sorted(tenants & {"", alert.tenant})]
        if events:
            fan_out = FanOut(wanting)
            jobs = [job for event in events for job in fan_out.jobs(event)]
            await self._repository.publish(events, jobs, self._clock.now_ms())

    def _event(self, alert: Alert, tenant: str) -> StoredEvent:
        now_ms = self._clock.now_ms()
        fields = msgspec.to_builtins(alert)
        said = {name: value for name, value in fields.items() if name not in _NOT_SAID}
        return StoredEvent(
            id=self._new_id(),
            source="penstock",
            type=alert.type,
            received_ms=now_ms,
            external_id=f"{alert.type}/{alert.subject}/{alert.key}",
            subject=alert.subject,
            time_ms=wall_ms(self._clock),
            data=_encode(said),
            group=alert.subject,
            tenant=tenant,
        )


def is_alert_subscription(subscription: Subscription) -> bool:
    """Return whether a subscription asks for Penstock's own events."""
    return subscription.pattern.startswith(PREFIX)

"""Reads what the verdict needs when somebody asks, for `/health`, the page, `penstock status` and Prometheus alike."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.client.types import HealthCode, HealthReason, HealthReport, HealthStatus, SubscriptionHealth
from penstock.delivery import Breakers
from penstock.domain.breaker import BreakerState
from penstock.domain.limits import MINUTE_MS
from penstock.edge.clock import Clock
from penstock.edge.disk_space import free_bytes
from penstock.events.api.health.report import WINDOW_MINUTES, HealthFacts, PartStates, assess, is_failing, shortened
from penstock.events.errors import DatabaseFailed
from penstock.events.statistics import Dimension, Minute, merged
from penstock.events.store import JobRepository
from penstock.http.api import Call, NoBody, NoQuery, route

PATH = "/health"
FRESH_MS = 2000
MOST_ERRORS = 20
MAX_LABELS = 200
OTHERS = "(others)"
_COUNTED_MINUTES = 30
_STATUSES = tuple(HealthStatus)
_BREAKERS = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}
_OUTCOMES = ("DELIVERED", "FAILED", "REFUSED", "DEFERRED")


class PartReader(Protocol):
    """Asks the other parts of Penstock how they are."""

    async def read(self) -> PartStates:
        """Return what the other parts say; a part that does not answer is a reason."""
        ...


class NoParts:
    """An API that knows no other parts."""

    async def read(self) -> PartStates:
        """Return nothing."""
        return PartStates()


class HealthWatch:
    """The newest verdict, made when it is asked for."""

    def __init__(
        self,
        repository: JobRepository,
        breakers: Breakers,
        clock: Clock,
        parts: PartReader,
        data_dir: Path | None = None,
    ) -> None:
        self._repository = repository
        self._breakers = breakers
        self._clock = clock
        self._parts = parts
        self._data_dir = data_dir
        self._reading: asyncio.Task[HealthReport] | None = None
        self.deliveries = DeliveryCounts()
        self.report: HealthReport | None = None

    async def fresh(self) -> HealthReport:
        """Return a verdict that is at most two seconds old; callers at the same time share one."""
        known = self.report
        if known is not None and 0 <= self._clock.now_ms() - known.at_ms < FRESH_MS:
            return known
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._judge())
        return await asyncio.shield(self._reading)

    async def knowing(self, subscription_id: str) -> HealthReport:
        """Return a fresh verdict; a new one if the last was made before the subscription."""
        report = await self.fresh()
        if any(each.id == subscription_id for each in report.subscriptions):
            return report
        self.report = None
        return await self.fresh()

    async def _judge(self) -> HealthReport:
        try:
            self.report = assess(await self._facts())
        except DatabaseFailed as error:
            self.report = _without_database(error.message, self._clock.now_ms())
        return self.report

    async def _facts(self) -> HealthFacts:
        now_ms = self._clock.now_ms()
        repository = self._repository
        states = await self._parts.read()
        since_ms = (now_ms // MINUTE_MS - _COUNTED_MINUTES) * MINUTE_MS
        minutes = await repository.statistics.minutes(since_ms, now_ms + MINUTE_MS, Dimension.SUBSCRIPTION)
        self.deliveries.count(minutes)
        subscriptions = await repository.list_subscriptions()
        oldest = await repository.oldest_waiting(now_ms)
        recent = _recent(minutes, now_ms)
        return HealthFacts(
            now_ms=now_ms,
            subscriptions=subscriptions,
            loads=await repository.subscription_loads(now_ms),
            recent=recent,
            recent_since_ms=max(_window_ms(now_ms), min((each.minute_ms for each in minutes), default=now_ms)),
            breakers=(*self._breakers.views(), *states.breakers),
            states=states,
            waits=oldest.by_subscription,
            last_errors=await self._last_errors(
                each.id for each in subscriptions if each.id in recent and is_failing(recent[each.id])
            ),
            trouble=repository.trouble(),
            free_bytes=self._free_bytes(),
        )

    async def _last_errors(self, failing: Iterable[str]) -> dict[str, str]:
        """Return why the newest failed delivery of each failed, of as many subscriptions as are worth the time."""
        errors: dict[str, str] = {}
        for subscription_id in islice(failing, MOST_ERRORS):
            for failure in await self._repository.recent_failures(subscription_id, 1):
                if failure.attempt.error:
                    errors[subscription_id] = failure.attempt.error
        return errors

    def _free_bytes(self) -> int | None:
        try:
            return None if self._data_dir is None else free_bytes(self._data_dir)
        except OSError:
            return None


def _recent(minutes: Iterable[Minute], now_ms: int) -> dict[str, Minute]:
    first_ms = _window_ms(now_ms)
    sums: dict[str, Minute] = {}
    for minute in minutes:
        if minute.minute_ms >= first_ms:
            known = sums.get(minute.name)
            sums[minute.name] = minute if known is None else merged(known, minute)
    return sums


def _window_ms(now_ms: int) -> int:
    return (now_ms // MINUTE_MS - WINDOW_MINUTES + 1) * MINUTE_MS


def _without_database(message: str, now_ms: int) -> HealthReport:
    reason = HealthReason(
        HealthCode.DATABASE,
        HealthStatus.DEGRADED,
        f"the database does not answer: {message}",
        "see that it runs and that this machine reaches it; `penstock doctor` checks it",
        "#/",
    )
    return HealthReport(
        status=HealthStatus.DEGRADED,
        summary=reason.message,
        at_ms=now_ms,
        reasons=[reason],
        parts=[],
        backlog=0,
        oldest_due_s=None,
        pipeline_lag=None,
        blocked_groups=0,
        subscriptions=[],
        more_subscriptions=0,
    )


class DeliveryCounts:
    """Deliveries by subscription and outcome since this process started, from the statistics of the database.

    The row of a minute grows while its attempts are counted; what was added since the last look is counted here.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[int, ...]] = {}
        self.totals: dict[str, tuple[int, ...]] = defaultdict(lambda: (0,) * len(_OUTCOMES))

    def count(self, minutes: Iterable[Minute]) -> None:
        """Add what the rows of the last minutes have beyond those seen before."""
        seen: dict[tuple[int, str], tuple[int, ...]] = {}
        for minute in minutes:
            key = minute.minute_ms, minute.name
            now = (minute.delivered, minute.failed, minute.refused, minute.deferred)
            before = self._seen.get(key, (0,) * len(_OUTCOMES))
            known = self.totals[minute.name]
            self.totals[minute.name] = tuple(
                total + max(0, new - old) for total, new, old in zip(known, now, before, strict=True)
            )
            seen[key] = now
        self._seen = seen


class HealthRoutes:
    """The route of the verdict."""

    def __init__(self, watch: HealthWatch) -> None:
        self._watch = watch

    @route("GET", PATH, summary="The health of everything: a verdict, its reasons, parts and the worst subscriptions.")
    async def _health(self, _: Call[NoQuery, NoBody]) -> HealthReport:
        return shortened(await self._watch.fresh())


class HealthCollector(Collector):
    """Exports the newest verdict and how subscriptions stand; the worst of them have a label of their own."""

    def __init__(self, watch: HealthWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        report = self._watch.report
        status = GaugeMetricFamily("penstock_health_status", "The verdict: 0 HEALTHY, 1 WARNING, 2 DEGRADED.")
        reasons = GaugeMetricFamily(
            "penstock_health_reasons", "Reasons for the verdict, by kind.", labels=["code", "status"]
        )
        if report is not None:
            status.add_metric([], _STATUSES.index(report.status))
            counts: dict[tuple[str, str], int] = defaultdict(int)
            for reason in report.reasons:
                counts[reason.code, reason.status] += 1
            for labels, count in counts.items():
                reasons.add_metric(labels, count)
        yield from (status, reasons)
        yield from self._subscriptions([] if report is None else report.subscriptions)

    def _subscriptions(self, found: list[SubscriptionHealth]) -> Iterator[Metric]:
        labels: dict[str, list[SubscriptionHealth]] = defaultdict(list)
        names: dict[str, str] = {}
        for number, each in enumerate(found):
            label = OTHERS if number >= MAX_LABELS else f"{each.tenant}/{each.name}" if each.tenant else each.name
            names[each.id] = label
            labels[label].append(each)
        yield from (
            _gauge(
                "backlog_jobs", "Unfinished jobs, counted up to 1,000 of each kind.", labels, lambda each: each.backlog
            ),
            _gauge(
                "oldest_due_seconds",
                "How long the oldest job has been due; of several under one label the oldest.",
                labels,
                lambda each: each.oldest_due_s or 0.0,
                worst=True,
            ),
            _gauge("blocked_groups", "Keys that wait for a job in ERROR.", labels, lambda each: each.blocked_groups),
            _gauge(
                "breaker_state",
                "The breaker of the endpoint: 0 closed, 1 half open, 2 open.",
                labels,
                lambda each: _BREAKERS[BreakerState(each.breaker)],
                worst=True,
            ),
            self._deliveries(names),
        )

    def _deliveries(self, names: dict[str, str]) -> Metric:
        counter = CounterMetricFamily(
            "penstock_subscription_deliveries",
            "Deliveries by outcome, as the statistics of the database count them: every API process has them all.",
            labels=["subscription", "outcome"],
        )
        sums: dict[str, list[int]] = defaultdict(lambda: [0] * len(_OUTCOMES))
        for subscription_id, counts in self._watch.deliveries.totals.items():
            label = names.get(subscription_id, OTHERS)
            sums[label] = [total + count for total, count in zip(sums[label], counts, strict=True)]
        for label, counted in sums.items():
            for outcome, total in zip(_OUTCOMES, counted, strict=True):
                counter.add_metric([label, outcome], total)
        return counter


def _gauge(
    name: str,
    doc: str,
    labels: dict[str, list[SubscriptionHealth]],
    read: Callable[[SubscriptionHealth], float],
    *,
    worst: bool = False,
) -> Metric:
    gauge = GaugeMetricFamily(f"penstock_subscription_{name}", doc, labels=["subscription"])
    for label, entries in labels.items():
        values = [read(each) for each in entries]
        gauge.add_metric([label], max(values) if worst else sum(values))
    return gauge

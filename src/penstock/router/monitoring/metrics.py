"""The router's metrics, computed from the counts of its parts at each scrape.

The number of labels is bounded: pools and queues beyond 512 and breakers beyond 200 are added up under `_other`, and a
pool shows its twenty heaviest groups.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.delivery import BreakerView
from penstock.domain.sketch import Histogram
from penstock.router.monitoring.views import QueueView, RouterPoolView, RouterSurface, longest
from penstock.router.monitoring.warnings import Warnings
from penstock.router.pools.counts import BUCKETS_S, SHOWN_GROUPS, PoolMetrics, RouterMetrics

MAX_LABELS = 512
MAX_ENDPOINT_LABELS = 200
# Groups are shown for the pools with the most messages.
MAX_GROUPED_POOLS = 50
MAX_TIMED_POOLS = 20
GROUP_MESSAGES = (1, 2, 5, 10, 20, 50, 100, 500)
OTHER = "_other"

T = TypeVar("T")
Read = Callable[[T], float]
Fold = Callable[[Iterable[float]], float]

_POOL_GAUGES: tuple[tuple[str, str, Read[RouterPoolView], Fold], ...] = (
    ("active", "Deliveries under way.", lambda pool: pool.active, sum),
    ("queued", "Messages waiting in the pool.", lambda pool: pool.queued, sum),
    ("backing_off", "Messages waiting for their next attempt.", lambda pool: pool.backing_off, sum),
    ("concurrency", "Deliveries that may run at once.", lambda pool: pool.concurrency, sum),
    ("available_permits", "Deliveries that could start now.", lambda pool: pool.available_permits, sum),
    ("queue_capacity", "Messages that may wait in the pool.", lambda pool: pool.queue_capacity, sum),
    ("groups", "Groups that have messages.", lambda pool: pool.groups, sum),
    ("rate_limited", "1 while the rate limit holds messages back.", lambda pool: pool.rate_limited, max),
    ("draining", "1 while the pool is being drained.", lambda pool: pool.draining, max),
    (
        "oldest_waiting_seconds",
        "Age of the message that has waited longest, for any reason.",
        lambda pool: pool.oldest_waiting_s,
        max,
    ),
)
_POOL_RESULTS: tuple[tuple[str, Read[PoolMetrics]], ...] = (
    ("success", lambda pool: pool.succeeded_count),
    ("failure", lambda pool: pool.failed_count),
    ("transient", lambda pool: pool.transient_count),
    ("deferred", lambda pool: pool.deferred_count),
)
_QUEUE_COUNTERS: tuple[tuple[str, str, Read[QueueView]], ...] = (
    ("polls", "Completed polls.", lambda queue: queue.polls),
    ("received", "Messages received from the queue.", lambda queue: queue.received),
    ("acked", "Messages removed from the queue.", lambda queue: queue.acked),
    ("nacked", "Messages returned to the queue.", lambda queue: queue.nacked),
    ("malformed", "Messages that are not valid pointers.", lambda queue: queue.malformed),
)
_QUEUE_GAUGES: tuple[tuple[str, str, Read[QueueView], Fold], ...] = (
    ("in_flight", "Messages received and not yet settled.", lambda queue: queue.in_flight, sum),
    ("healthy", "1 if the consumer polls.", lambda queue: queue.healthy, min),
    ("paused", "1 while a full pool keeps the consumer from polling.", lambda queue: queue.paused, max),
    ("last_poll_age_seconds", "Time since the last poll ended.", lambda queue: queue.last_poll_age_s or 0.0, max),
)
_BREAKER_STATES = {"CLOSED": 0, "HALF_OPEN": 1, "OPEN": 2}


class RouterCollector(Collector):
    """Converts the router's counts to Prometheus metrics."""

    def __init__(self, router: RouterSurface, metrics: RouterMetrics, warnings: Warnings) -> None:
        self._router = router
        self._metrics = metrics
        self._warnings = warnings

    def describe(self) -> Iterable[Metric]:
        """Return nothing, as there is no router yet when the collector is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        counted = _by_label(self._metrics, lambda entry: entry[0], MAX_LABELS)
        yield from _gauges("pool", _POOL_GAUGES, _by_label(self._router.pools(), lambda pool: pool.code, MAX_LABELS))
        yield from _pool_counters({label: [pool for _, pool in entries] for label, entries in counted.items()})
        yield from self._groups()
        queues = _by_label(self._router.queues(), lambda queue: queue.name, MAX_LABELS)
        yield from _gauges("queue", _QUEUE_GAUGES, queues)
        yield from _queue_counters(queues)
        yield from _breakers(self._router.breakers())
        yield from self._totals()

    def _totals(self) -> Iterator[Metric]:
        uses = CounterMetricFamily(
            "penstock_router_default_pool_uses", "Messages whose pool does not exist, sent to the default pool."
        )
        uses.add_metric([], self._metrics.default_pool_uses)
        yield uses
        open_warnings = GaugeMetricFamily(
            "penstock_router_warnings", "Warnings that are not acknowledged.", labels=["severity"]
        )
        for severity, count in self._warnings.counts().items():
            open_warnings.add_metric([severity], count)
        yield open_warnings

    def _groups(self) -> Iterator[Metric]:
        depth = _group_gauge("queued", "Messages waiting in the groups with the longest queues.")
        for group in longest(self._router.groups(None), SHOWN_GROUPS):
            depth.add_metric([group.pool, group.group], group.queued)
        busy = _group_gauge("processing_seconds", "Delivery time of the groups with the most, estimated.")
        waited = _group_gauge(
            "waiting_seconds", "Time that messages waited for their turn in the groups with the most, estimated."
        )
        delivery = _group_histogram("delivery", "Time of deliveries in the busiest groups, estimated.")
        wait = _group_histogram("wait", "Time that messages waited for their turn in the busiest groups, estimated.")
        busiest = nlargest(MAX_GROUPED_POOLS, self._metrics, key=lambda each: each[1].submitted_count)
        for code, pool in busiest[:MAX_TIMED_POOLS]:
            for name, times in pool.group_times():
                delivery.add_metric([code, name], *_samples(times.processing))
                wait.add_metric([code, name], *_samples(times.waiting))
        for code, pool in busiest:
            for heavy in pool.busiest_groups():
                busy.add_metric([code, heavy.key], heavy.weight / 1e6)
            for heavy in pool.most_delayed_groups():
                waited.add_metric([code, heavy.key], heavy.weight / 1e6)
        yield from (depth, busy, waited, delivery, wait, self._messages_per_group())

    def _messages_per_group(self) -> Metric:
        family = GaugeHistogramMetricFamily(
            "penstock_router_pool_group_messages", "Messages that each group has in a pool now.", labels=["pool"]
        )
        groups = _by_label(self._router.groups(None), lambda group: group.pool, MAX_LABELS)
        for label, entries in groups.items():
            messages = Histogram(GROUP_MESSAGES)
            for group in entries:
                messages.observe(group.queued + group.active)
            buckets, total = _samples(messages)
            family.add_metric([label], buckets, total)
        return family


def _by_label(entries: Iterable[T], name_of: Callable[[T], str], most: int) -> dict[str, list[T]]:
    """Group entries by name, and all beyond `most` names under one label."""
    grouped: dict[str, list[T]] = {}
    for entry in entries:
        name = name_of(entry)
        label = name if name in grouped or len(grouped) < most else OTHER
        grouped.setdefault(label, []).append(entry)
    return grouped


def _gauges(
    kind: str, gauges: Sequence[tuple[str, str, Read[T], Fold]], grouped: dict[str, list[T]]
) -> Iterator[Metric]:
    for name, doc, read, fold in gauges:
        gauge = GaugeMetricFamily(f"penstock_router_{kind}_{name}", doc, labels=[kind])
        for label, entries in grouped.items():
            gauge.add_metric([label], fold(map(read, entries)))
        yield gauge


def _pool_counters(grouped: dict[str, list[PoolMetrics]]) -> Iterator[Metric]:
    messages = CounterMetricFamily(
        "penstock_router_pool_messages", "Messages finished by a pool.", labels=["pool", "result"]
    )
    submitted = CounterMetricFamily("penstock_router_pool_submitted", "Messages accepted by a pool.", labels=["pool"])
    limited = CounterMetricFamily(
        "penstock_router_pool_rate_limit_waits", "Times that the rate limit held a pool back.", labels=["pool"]
    )
    processing = _histogram("processing", "Time of a message's deliveries, all attempts together.")
    waiting = _histogram("waiting", "Time a message waited for its turn, without the pauses between attempts.")
    for label, pools in grouped.items():
        for result, read in _POOL_RESULTS:
            messages.add_metric([label, result], sum(map(read, pools)))
        submitted.add_metric([label], sum(pool.submitted_count for pool in pools))
        limited.add_metric([label], sum(pool.rate_limit_waits for pool in pools))
        _add_histogram(processing, label, [pool.processing for pool in pools])
        _add_histogram(waiting, label, [pool.waiting for pool in pools])
    yield from (messages, submitted, limited, processing, waiting)


def _queue_counters(grouped: dict[str, list[QueueView]]) -> Iterator[Metric]:
    for name, doc, read in _QUEUE_COUNTERS:
        counter = CounterMetricFamily(f"penstock_router_queue_{name}", doc, labels=["queue"])
        for label, queues in grouped.items():
            counter.add_metric([label], sum(map(read, queues)))
        yield counter


def _breakers(breakers: Sequence[BreakerView]) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "penstock_router_breaker_state",
        "0 closed, 1 half open, 2 open; the worst state under this label.",
        labels=["endpoint"],
    )
    recent = GaugeMetricFamily(
        "penstock_router_breaker_window_calls", "Calls in the breaker's window.", labels=["endpoint", "result"]
    )
    rejected = CounterMetricFamily(
        "penstock_router_breaker_rejected", "Deliveries rejected by an open breaker.", labels=["endpoint"]
    )
    for label, entries in _by_label(breakers, lambda each: each.endpoint, MAX_ENDPOINT_LABELS).items():
        failures = sum(each.failures for each in entries)
        state.add_metric([label], max(_BREAKER_STATES[each.state] for each in entries))
        recent.add_metric([label, "failure"], failures)
        recent.add_metric([label, "success"], sum(each.calls for each in entries) - failures)
        rejected.add_metric([label], sum(each.rejected for each in entries))
    yield from (state, recent, rejected)


def _group_gauge(name: str, doc: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"penstock_router_group_{name}", doc, labels=["pool", "group"])


def _histogram(name: str, doc: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"penstock_router_pool_{name}_seconds", doc, labels=["pool"])


def _group_histogram(name: str, doc: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"penstock_router_group_{name}_seconds", doc, labels=["pool", "group"])


def _add_histogram(family: HistogramMetricFamily, label: str, parts: Sequence[Histogram]) -> None:
    merged = Histogram(BUCKETS_S)
    for part in parts:
        merged.merge(part)
    family.add_metric([label], *_samples(merged))


def _samples(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    bounds = [*map(str, histogram.bounds), "+Inf"]
    return list(zip(bounds, map(float, histogram.cumulative()), strict=True)), histogram.total

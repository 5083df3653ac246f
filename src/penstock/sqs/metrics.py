"""The server's counters, written out when metrics are scraped."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.ops.telemetry import DELAY_BUCKETS_S

if TYPE_CHECKING:
    from penstock.sqs.queue.queue import SqsQueue
    from penstock.sqs.service import SqsService

MAX_QUEUE_LABELS = 512
OTHER = "_other"


class Latency:
    """A histogram of seconds."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(DELAY_BUCKETS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one request."""
        self.counts[bisect_left(DELAY_BUCKETS_S, seconds)] += 1
        self.total_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts as Prometheus expects them."""
        bounds = [*(str(bound) for bound in DELAY_BUCKETS_S), "+Inf"]
        total = 0
        cumulative: list[tuple[str, float]] = []
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            cumulative.append((bound, total))
        return cumulative


class SqsMetrics(Collector):
    """The counters of one process; at most 512 queues have their own label."""

    def __init__(self) -> None:
        self.services: list[SqsService] = []
        """Those whose queues are counted."""
        self._throttled: dict[tuple[str, str], int] = {}
        self._partition_messages: dict[tuple[str, int, str], int] = {}
        self._latencies: dict[str, Latency] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._labels: set[str] = set()

    def count_throttled(self, queue_name: str, action: str) -> None:
        """Count a request that a queue's throttle refused."""
        key = (self._label(queue_name), action)
        self._throttled[key] = self._throttled.get(key, 0) + 1

    def count_partition(self, queue: "SqsQueue", partition: int, action: str, messages: int) -> None:
        """Count messages that entered or left a partition; queues with one partition are not counted."""
        if len(queue.partitions) > 1:
            key = (self._label(queue.name), partition, action)
            self._partition_messages[key] = self._partition_messages.get(key, 0) + messages

    def observe(self, action: str, seconds: float) -> None:
        """Count an answered request and its duration."""
        latency = self._latencies.get(action)
        if latency is None:
            latency = self._latencies[action] = Latency()
        latency.observe(seconds)

    def count_error(self, action: str, code: str) -> None:
        """Count a request answered with an error."""
        self._errors[action, code] = self._errors.get((action, code), 0) + 1

    def forget(self, queue_name: str) -> None:
        """Drop the metrics of a deleted queue."""
        self._labels.discard(queue_name)
        self._throttled = {key: n for key, n in self._throttled.items() if key[0] != queue_name}
        self._partition_messages = {key: n for key, n in self._partition_messages.items() if key[0] != queue_name}

    def collect(self) -> Iterable[Metric]:
        """Return all metrics for Prometheus."""
        throttled = CounterMetricFamily(
            "sqs_throttled_requests", "Requests refused by a queue's throttle.", labels=["queue", "action"]
        )
        for (queue, action), count in self._throttled.items():
            throttled.add_metric([queue, action], count)
        yield throttled
        moved = CounterMetricFamily(
            "sqs_partition_messages",
            "Messages sent to, received from and deleted in the partitions of a queue.",
            labels=["queue", "partition", "action"],
        )
        for (queue, partition, action), count in self._partition_messages.items():
            moved.add_metric([queue, str(partition), action], count)
        yield moved
        errors = CounterMetricFamily(
            "sqs_request_errors", "Requests answered with an error.", labels=["action", "code"]
        )
        for (action, code), count in self._errors.items():
            errors.add_metric([action, code], count)
        yield errors
        latency = HistogramMetricFamily("sqs_request_seconds", "Time to answer a request.", labels=["action"])
        for action, seen in self._latencies.items():
            latency.add_metric([action], seen.buckets(), seen.total_s)
        yield latency
        yield from self._gauges()

    def _gauges(self) -> Iterator[Metric]:
        tokens = GaugeMetricFamily(
            "sqs_throttle_tokens_remaining", "Tokens left in a throttle's bucket.", labels=["queue", "action"]
        )
        lowest: dict[tuple[str, str], float] = {}
        for service in self.services:
            for level in service.throttles.tokens_remaining(service.clock.now_ms()):
                key = (self._label(level.queue_name), str(level.action))
                lowest[key] = min(level.tokens, lowest.get(key, level.tokens))
        for (queue, action), left in lowest.items():
            tokens.add_metric([queue, action], left)
        yield tokens
        held = GaugeMetricFamily("sqs_queue_messages", "Messages in a queue by state.", labels=["queue", "state"])
        totals: dict[tuple[str, str], int] = {}
        for each in (queue for service in self.services for queue in service.queues.values()):
            label = self._label(each.name)
            for counters in each.counters():
                for state, count in (
                    ("visible", counters.visible + counters.in_store),
                    ("not_visible", counters.leased + counters.settling),
                    ("delayed", counters.delayed),
                ):
                    totals[label, state] = totals.get((label, state), 0) + count
        for (queue, state), count in totals.items():
            held.add_metric([queue, state], count)
        yield held
        damaged = GaugeMetricFamily("sqs_damaged_messages", "Damaged messages set aside since the server started.")
        damaged.add_metric([], sum(service.damaged_messages() for service in self.services))
        yield damaged

    def _label(self, queue_name: str) -> str:
        if queue_name in self._labels:
            return queue_name
        if len(self._labels) >= MAX_QUEUE_LABELS:
            return OTHER
        self._labels.add(queue_name)
        return queue_name

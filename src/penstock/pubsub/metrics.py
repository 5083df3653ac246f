"""The metrics of the Pub/Sub server, collected on request."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.broker import AsyncBroker
from penstock.domain.sketch import Histogram
from penstock.pubsub.push.pusher import BUCKETS_S, PushCounts

MAX_SUBSCRIPTION_LABELS = 512
OTHER = "_other"


class PubsubMetrics(Collector):
    """The counters of one server; at most 512 subscriptions have their own label."""

    def __init__(self, broker: AsyncBroker, pushes: Mapping[str, PushCounts]) -> None:
        self._broker = broker
        self._pushes = pushes
        self._calls: dict[tuple[str, str], int] = {}
        self._in_progress: dict[str, int] = {}

    def begin_call(self, method: str) -> None:
        """Count a call that starts."""
        self._in_progress[method] = self._in_progress.get(method, 0) + 1

    def end_call(self, method: str, code: str) -> None:
        """Count a call that was answered."""
        self._in_progress[method] -= 1
        self._calls[method, code] = self._calls.get((method, code), 0) + 1

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics for Prometheus."""
        calls = CounterMetricFamily("pubsub_calls", "Calls answered.", labels=["method", "code"])
        for (method, code), count in self._calls.items():
            calls.add_metric([method, code], count)
        yield calls
        in_progress = GaugeMetricFamily("pubsub_calls_in_progress", "Calls not answered yet.", labels=["method"])
        for method, count in self._in_progress.items():
            in_progress.add_metric([method], count)
        yield in_progress
        yield self._messages()
        yield self._pushed()
        yield self._outstanding_pushes()
        yield self._push_seconds()

    def _messages(self) -> Metric:
        held = GaugeMetricFamily(
            "pubsub_subscription_messages", "Messages of a subscription by state.", labels=["subscription", "state"]
        )
        totals: dict[tuple[str, str], int] = {}
        for place, metadata in enumerate(self._broker.rules.subscriptions()):
            label = metadata.name if place < MAX_SUBSCRIPTION_LABELS else OTHER
            counters = self._broker.rules.subscription(metadata.name).queue.counters()
            for state, count in (
                ("waiting", counters.visible + counters.in_store),
                ("outstanding", counters.leased + counters.settling),
                ("backing_off", counters.delayed),
            ):
                totals[label, state] = totals.get((label, state), 0) + count
        for labels, count in totals.items():
            held.add_metric(labels, count)
        return held

    def _pushed(self) -> Metric:
        pushed = CounterMetricFamily("pubsub_pushes", "Pushes that have ended.", labels=["subscription", "outcome"])
        totals: dict[tuple[str, str], int] = {}
        for label, counts in self._labelled_pushes():
            for outcome, count in counts.ended.items():
                totals[label, outcome] = totals.get((label, outcome), 0) + count
        for labels, count in totals.items():
            pushed.add_metric(labels, count)
        return pushed

    def _outstanding_pushes(self) -> Metric:
        outstanding = GaugeMetricFamily("pubsub_pushes_outstanding", "Pushes not answered.", labels=["subscription"])
        totals: dict[str, int] = {}
        for label, counts in self._labelled_pushes():
            totals[label] = totals.get(label, 0) + counts.outstanding
        for label, count in totals.items():
            outstanding.add_metric([label], count)
        return outstanding

    def _push_seconds(self) -> Metric:
        seconds = HistogramMetricFamily(
            "pubsub_push_seconds", "Time an endpoint took to answer.", labels=["subscription"]
        )
        merged: dict[str, Histogram] = {}
        for label, counts in self._labelled_pushes():
            merged.setdefault(label, Histogram(BUCKETS_S)).merge(counts.seconds)
        bounds = [*map(str, BUCKETS_S), "+Inf"]
        for label, histogram in merged.items():
            buckets = list(zip(bounds, map(float, histogram.cumulative()), strict=True))
            seconds.add_metric([label], buckets, histogram.total)
        return seconds

    def _labelled_pushes(self) -> Iterator[tuple[str, PushCounts]]:
        for place, (name, counts) in enumerate(sorted(self._pushes.items())):
            yield name if place < MAX_SUBSCRIPTION_LABELS else OTHER, counts

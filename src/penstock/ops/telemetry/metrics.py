"""Metrics of one served part, in a registry of its own."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from penstock import __version__

DELAY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Makes metrics named `penstock_…` and writes them in Prometheus' text format."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, part: str) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self._registry)
        self.gauge("build_info", "Which version runs, in which part.", ("version", "part")).labels(
            __version__, part
        ).set(1)

    def counter(self, name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
        """A count that only grows, exposed as penstock_NAME_total."""
        return Counter(name, doc, labels, namespace="penstock", registry=self._registry)

    def gauge(self, name: str, doc: str, labels: Sequence[str] = ()) -> Gauge:
        """A value that goes up and down."""
        return Gauge(name, doc, labels, namespace="penstock", registry=self._registry)

    def histogram(
        self, name: str, doc: str, labels: Sequence[str] = (), buckets: Sequence[float] = DELAY_BUCKETS_S
    ) -> Histogram:
        """A distribution; the buckets suit delays in seconds unless others are given."""
        return Histogram(name, doc, labels, namespace="penstock", registry=self._registry, buckets=buckets)

    def register(self, collector: Collector) -> None:
        """Ask `collector` for its metrics whenever they are exposed."""
        self._registry.register(collector)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

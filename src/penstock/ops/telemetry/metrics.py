"""Metrics of a served part, in their own registry."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from penstock import __version__

DELAY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Creates metrics named `penstock_…` and writes them in Prometheus' text format."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, part: str) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self._registry)
        self.gauge("build_info", "The version and the part that is running.", ("version", "part")).labels(
            __version__, part
        ).set(1)

    def counter(self, name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
        """Return a new counter, exposed as penstock_NAME_total."""
        return Counter(name, doc, labels, namespace="penstock", registry=self._registry)

    def gauge(self, name: str, doc: str, labels: Sequence[str] = ()) -> Gauge:
        """Return a new gauge."""
        return Gauge(name, doc, labels, namespace="penstock", registry=self._registry)

    def histogram(
        self, name: str, doc: str, labels: Sequence[str] = (), buckets: Sequence[float] = DELAY_BUCKETS_S
    ) -> Histogram:
        """Return a new histogram; the default buckets suit delays in seconds."""
        return Histogram(name, doc, labels, namespace="penstock", registry=self._registry, buckets=buckets)

    def register(self, collector: Collector) -> None:
        """Collect metrics from `collector` at each scrape."""
        self._registry.register(collector)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

"""The counters of a node, beside those of its queues."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.sqs.nodes.owners import Owners


class NodeMetrics(Collector):
    """What this node owns, and what it had to leave to others."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def collect(self) -> Iterable[Metric]:
        """Return all metrics for Prometheus."""
        keeper = self._owners.keeper
        yield GaugeMetricFamily(
            "sqs_node_shards", "Shards that this node owns.", value=0 if keeper is None else len(keeper.held)
        )
        yield CounterMetricFamily(
            "sqs_node_refused_shards",
            "Shards that this node could not own for lack of a capability.",
            value=0 if keeper is None else keeper.refusals,
        )
        yield CounterMetricFamily("sqs_node_hops", "Requests passed on to other nodes.", value=self._owners.hops_sent)

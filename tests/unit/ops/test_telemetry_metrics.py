from penstock import __version__
from penstock.ops.telemetry.metrics import Metrics


def test_metrics_are_exposed_as_text() -> None:
    metrics = Metrics("router")
    metrics.counter("sent", "Messages sent.", ("pool",)).labels("p").inc(2)
    metrics.gauge("waiting", "Messages waiting.").set(3)
    metrics.histogram("delay_seconds", "Delays.").observe(0.2)
    lines = metrics.exposition().decode().splitlines()
    assert 'penstock_sent_total{pool="p"} 2.0' in lines
    assert "penstock_waiting 3.0" in lines
    assert 'penstock_delay_seconds_bucket{le="0.25"} 1.0' in lines
    assert f'penstock_build_info{{part="router",version="{__version__}"}} 1.0' in lines
    assert metrics.content_type.startswith("text/plain; version=")


def test_each_part_has_its_own_registry() -> None:
    first, second = Metrics("a"), Metrics("b")
    first.counter("sent", "Messages sent.").inc()
    second.counter("sent", "Messages sent.")
    assert b"penstock_sent_total 1.0" in first.exposition()
    assert b"penstock_sent_total 0.0" in second.exposition()


def test_a_collector_is_asked_at_each_exposition() -> None:
    from collections.abc import Iterable

    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    class Depths(Collector):
        def collect(self) -> Iterable[Metric]:
            yield GaugeMetricFamily("penstock_depth", "Depth.", value=5)

    metrics = Metrics("queue")
    metrics.register(Depths())
    assert b"penstock_depth 5.0" in metrics.exposition()

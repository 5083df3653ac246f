"""Prometheus metrics of the streaming jobs."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.ops.telemetry import Metrics
from penstock.spark.progress import QueryProgress, QueryStatus, QueryView

_LABELS = ("query",)


class BatchTimes:
    """The duration of micro-batches."""

    def __init__(self, metrics: Metrics) -> None:
        self._histogram = metrics.histogram("pipeline_batch_seconds", "Duration of micro-batches.", _LABELS)

    def observe(self, query: str, duration_ms: int) -> None:
        """Record one micro-batch."""
        self._histogram.labels(query).observe(duration_ms / 1000)


class ProgressCollector(Collector):
    """Exports the progress of each job."""

    def __init__(self, progresses: Sequence[QueryProgress]) -> None:
        self._progresses = progresses

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        views = [progress.view() for progress in self._progresses]
        yield _counter("rows", "Rows read by the streaming job.", views, lambda view: view.rows)
        yield _counter("batches", "Finished micro-batches.", views, lambda view: view.batches)
        yield _counter("failures", "Failures of the streaming job.", views, lambda view: view.failures)
        yield _counter("restarts", "Restarts of the streaming job.", views, lambda view: view.restarts)
        yield _gauge("up", "1 if the streaming job runs.", views, lambda view: view.status is QueryStatus.RUNNING)
        yield _gauge("rows_per_second", "Throughput of the last micro-batch.", views, lambda view: view.rows_per_second)
        lagging = [view for view in views if view.lag is not None]
        yield _gauge("lag_rows", "Rows that wait for the streaming job.", lagging, lambda view: view.lag or 0)


def _counter(name: str, doc: str, views: Sequence[QueryView], value: Callable[[QueryView], float]) -> Metric:
    counter = CounterMetricFamily(f"penstock_pipeline_{name}", doc, labels=_LABELS)
    for view in views:
        counter.add_metric([view.name], value(view))
    return counter


def _gauge(name: str, doc: str, views: Sequence[QueryView], value: Callable[[QueryView], float]) -> Metric:
    gauge = GaugeMetricFamily(f"penstock_pipeline_{name}", doc, labels=_LABELS)
    for view in views:
        gauge.add_metric([view.name], value(view))
    return gauge

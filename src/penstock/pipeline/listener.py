"""Spark's own word on the streaming queries, brought to the progress of each job."""

from collections.abc import Iterable

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.pipeline.metrics import BatchTimes
from penstock.pipeline.progress import Batch, Progress


class ProgressListener(StreamingQueryListener):
    """Notes every micro-batch; starts and ends are the supervisor's to note, who causes them."""

    def __init__(self, progresses: Iterable[Progress], times: BatchTimes) -> None:
        self._by_name = {progress.name: progress for progress in progresses}
        self._times = times

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  as Spark calls it
        """Nothing to note."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is done."""
        told = event.progress
        progress = self._by_name.get(told.name or "")
        if progress is None:
            return
        rate = told.processedRowsPerSecond
        # Spark tells a batch of no rows as "not a number" of rows per second.
        rows_per_second = rate if rate == rate else 0.0
        progress.advanced(Batch(told.batchId, told.numInputRows, told.batchDuration, rows_per_second))
        self._times.observe(progress.name, told.batchDuration)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to note."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to note."""

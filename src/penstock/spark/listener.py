"""Receives the progress of streaming queries from Spark."""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.spark.metrics import BatchTimes
from penstock.spark.progress import BatchProgress, QueryProgress


class EndedBatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Spark's report of a micro-batch."""

    name: str | None = None
    batch_id: int
    num_input_rows: int
    batch_duration: int
    processed_rows_per_second: float = 0.0
    """Spark leaves it out for a batch without rows."""


_decode = msgspec.json.Decoder(EndedBatch).decode


class ProgressListener(StreamingQueryListener):
    """Records every micro-batch, at the cost of three calls to Java; the supervisor itself records starts and ends.

    PySpark's own listeners ask Java for each field of an event: hundreds of calls, which take longer than a small
    micro-batch.
    """

    class Java:
        """The interface that py4j implements."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, progresses: Iterable[QueryProgress], times: BatchTimes) -> None:
        self._by_name = {progress.name: progress for progress in progresses}
        self._times = times

    @property
    def _jlistener(self) -> Any:  # py4j is not typed
        if not hasattr(self, "_jlistenerobj"):
            jvm = SparkContext._jvm
            assert jvm is not None
            self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(self)
        return self._jlistenerobj

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  as Spark calls it
        """Ignore the event."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Record a finished micro-batch."""
        self.ended(_decode(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Ignore the event."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Ignore the event."""

    def ended(self, batch: EndedBatch) -> None:
        """Record a micro-batch."""
        progress = self._by_name.get(batch.name or "")
        if progress is not None:
            done = BatchProgress(
                batch.batch_id, batch.num_input_rows, batch.batch_duration, batch.processed_rows_per_second
            )
            progress.advanced(done)
            self._times.observe(progress.name, batch.batch_duration)

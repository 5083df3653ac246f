"""Spark's own word on the streaming queries, brought to the progress of each job.

Hears of every micro-batch from Spark, for three calls to Java.

PySpark's own listeners ask Java for each field of an event by itself: hundreds of calls, which take longer than a small
micro-batch does.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec
from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.spark.metrics import BatchTimes
from penstock.spark.progress import BatchProgress, QueryProgress


class EndedBatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What Spark says of a micro-batch."""

    name: str | None = None
    batch_id: int
    num_input_rows: int
    batch_duration: int
    processed_rows_per_second: float = 0.0
    """Left out by Spark for a batch of no rows."""
    observed_metrics: Mapping[str, Mapping[str, int | None]] = {}


_decode = msgspec.json.Decoder(EndedBatch).decode


class BatchListener(StreamingQueryListener, ABC):
    """Is told when a micro-batch ended. Java calls it itself, with its own events; only this one is of interest."""

    class Java:
        """What py4j takes it for."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    @abstractmethod
    def ended(self, batch: EndedBatch) -> None:
        """A micro-batch is done."""

    @property
    def _jlistener(self) -> Any:  # py4j is not typed
        if not hasattr(self, "_jlistenerobj"):
            jvm = SparkContext._jvm
            assert jvm is not None
            self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(self)
        return self._jlistenerobj

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  as Spark calls it
        """Of no interest."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A micro-batch is done."""
        self.ended(_decode(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Of no interest."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Of no interest."""


class ProgressListener(BatchListener):
    """Notes every micro-batch; starts and ends are the supervisor's to note, who causes them."""

    def __init__(self, progresses: Iterable[QueryProgress], times: BatchTimes) -> None:
        self._by_name = {progress.name: progress for progress in progresses}
        self._times = times

    def ended(self, batch: EndedBatch) -> None:
        """A micro-batch is done."""
        progress = self._by_name.get(batch.name or "")
        if progress is not None:
            told = BatchProgress(
                batch.batch_id, batch.num_input_rows, batch.batch_duration, batch.processed_rows_per_second
            )
            progress.advanced(told)
            self._times.observe(progress.name, batch.batch_duration)

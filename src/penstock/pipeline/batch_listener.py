"""Hears of every micro-batch from Spark, for three calls to Java.

PySpark's own listeners ask Java for each field of an event by itself: hundreds of calls, which take longer than a small
micro-batch does.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


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
    """Is told when a micro-batch ended; what else Spark tells is of no interest."""

    @abstractmethod
    def ended(self, batch: EndedBatch) -> None:
        """A micro-batch is done."""

    @property
    def _jlistener(self) -> Any:  # py4j is not typed
        if not hasattr(self, "_jlistenerobj"):
            jvm = SparkContext._jvm
            assert jvm is not None
            self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(_Ear(self))
        return self._jlistenerobj

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  as Spark calls it
        """Not used: Spark calls the ear."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Not used."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Not used."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Not used."""


class _Ear:
    """What Java calls."""

    def __init__(self, listener: BatchListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Of no interest."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A micro-batch is done."""
        self._listener.ended(_decode(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Of no interest."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Of no interest."""

    class Java:
        """What py4j takes it for."""

        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

"""What micro-batches did, told as each of them ends."""

import logging
from collections.abc import Callable

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.pipeline.fan_out.keeping import KEPT

log = logging.getLogger(__name__)

NAME = "fan-out"


class FannedOut(msgspec.Struct, frozen=True):
    """What a micro-batch did."""

    batch_id: int
    events: int
    jobs: int
    set_aside: int


class Teller(StreamingQueryListener):
    """Hears of the micro-batches of fan-out from Spark, and tells whoever asked for it."""

    def __init__(self, tell: Callable[[FannedOut], None]) -> None:
        self._tell = tell
        self._spark: SparkSession | None = None

    def listen(self, spark: SparkSession) -> None:
        """Begin to listen; once, however often the job is started."""
        if self._spark is None:
            spark.streams.addListener(self)
            self._spark = spark

    def close(self) -> None:
        """Listen no more."""
        if self._spark is not None:
            self._spark.streams.removeListener(self)
            self._spark = None

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch ended."""
        counts = event.progress.observedMetrics.get(NAME)
        if event.progress.name != NAME or counts is None:
            return
        done = FannedOut(event.progress.batchId, *(counts[name] or 0 for name in KEPT.names))
        if done.set_aside:
            log.warning("fan-out set %d damaged events aside: see the table set_aside", done.set_aside)
        self._tell(done)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to tell."""

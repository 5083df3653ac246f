"""What micro-batches did, told as each of them ends."""

import logging
from collections.abc import Callable

import msgspec
from pyspark.sql import SparkSession

from penstock.pipeline.batch_listener import BatchListener, EndedBatch
from penstock.pipeline.fan_out.keeping import KEPT

log = logging.getLogger(__name__)

NAME = "fan-out"


class FannedOut(msgspec.Struct, frozen=True):
    """What a micro-batch did."""

    batch_id: int
    events: int
    jobs: int
    set_aside: int


class Teller(BatchListener):
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

    def ended(self, batch: EndedBatch) -> None:
        """A micro-batch ended."""
        counts = batch.observed_metrics.get(NAME)
        if batch.name != NAME or counts is None:
            return
        done = FannedOut(batch.batch_id, *(counts[name] or 0 for name in KEPT.names))
        if done.set_aside:
            log.warning("fan-out set %d damaged events aside: see the table set_aside", done.set_aside)
        self._tell(done)

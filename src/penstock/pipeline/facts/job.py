"""The facts job: a streaming query over attempts."""

import logging

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.domain.errors import PenstockError
from penstock.edge.clock import Clock, SystemClock
from penstock.pipeline.database import Database
from penstock.pipeline.facts.batch import FactsBatch
from penstock.pipeline.facts.lake import Lake, LakeFormat, open_lake
from penstock.pipeline.tables import Tables

TIDY_EVERY = 100
"""Batches between two looks at whether a day needs compacting."""

log = logging.getLogger(__name__)


class FactsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the facts job runs; with `once` it takes in what is there and ends."""

    lake: str
    format: LakeFormat = LakeFormat.PARQUET
    trigger_ms: int = 10_000
    most_rows: int = 100_000
    once: bool = False


class FactsJob:
    """Attempts into the lake and the statistics, as they are made."""

    name = "facts"

    def __init__(self, database: Database, settings: FactsSettings, clock: Clock | None = None) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock or SystemClock()

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Start the query."""
        settings = self._settings
        lake = open_lake(spark, settings.lake, settings.format)
        batches = FactsBatch(self._database, lake, self._clock)

        def take_in(attempts: DataFrame, number: int) -> None:
            rows = batches.take_in(attempts)
            log.info("batch %d: %d attempts", number, rows)
            if number % TIDY_EVERY == TIDY_EVERY - 1:
                _tidy(lake)

        writer = (
            Tables(spark, self._database)
            .attempt_stream(most_rows=settings.most_rows)
            .drop("response")
            .writeStream.queryName(self.name)
            .option("checkpointLocation", checkpoint)
            .foreachBatch(take_in)
        )
        if settings.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()

    def lag(self) -> int | None:
        """How many attempts wait is not known without counting them."""
        return None


def _tidy(lake: Lake) -> None:
    try:
        lake.tidy()
    except PenstockError as error:
        # The facts are safe as they are, only slower to read.
        log.warning("the lake was not compacted: %s", error.message)

"""The streaming query of fan-out: matches each micro-batch of events with the current subscriptions and stores the
jobs.

The whole plan is built once, so no micro-batch waits for the driver's Python. The stream takes a backlog; while few
events wait, `SmallBatches` fans them out in the driver (decision 0028).
"""

import logging
from collections.abc import Callable
from threading import Lock

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.events.fan_out.spark_plan import by_group
from penstock.events.fan_out.spark_small import SmallBatches
from penstock.events.fan_out.spark_task import KEPT, OpenedRepository, keep_jobs
from penstock.spark.database import SparkDatabase
from penstock.spark.listener import BatchListener, EndedBatch
from penstock.spark.schemas import POSITION
from penstock.spark.sources.stream_source import TASK_ROWS
from penstock.spark.sources.table_source import registered

log = logging.getLogger(__name__)
NAME = "fan-out"
# A larger lag is not counted exactly.
_MOST_LAG = 100_000


class FanOutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much a micro-batch takes, how often one begins, and whether to end when nothing waits.

    `tasks` share a micro-batch; None means one on a single machine, which saves the shuffle, and one per core on a
    cluster. The driver itself fans out while up to `few_rows` events wait, `most_rows` at most; 0 leaves all to Spark.
    """

    most_rows: int = 100_000
    few_rows: int = 20_000
    trigger_ms: int = 500
    once: bool = False
    tasks: int | None = None

    @property
    def driver_rows(self) -> int:
        """Return how many events the driver takes; a stream takes what is there, however little, if it runs once."""
        return 0 if self.once else min(self.few_rows, self.most_rows)


DEFAULTS = FanOutSettings()


class FanOutJob:
    """Fans out the events that wait in a database."""

    name = NAME

    def __init__(
        self,
        database: SparkDatabase,
        settings: FanOutSettings = DEFAULTS,
        on_batch: "Callable[[FannedOut], None]" = lambda _: None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._listener = FanOutListener(on_batch)
        self._opening = Lock()
        self._opened: OpenedRepository | None = None
        self._small = SmallBatches(
            database, settings.driver_rows, lambda done: _report(FannedOut(None, *done), on_batch)
        )

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Start the query."""
        # Opened first, so that the tables are migrated before the stream reads them.
        self._jobs()
        self._listener.listen(spark)
        counts = [f.sum(name).alias(name) for name in KEPT.names]
        kept = self._kept(spark).observe(NAME, *counts)
        writer = kept.writeStream.queryName(self.name).option("checkpointLocation", checkpoint).format("noop")
        if self._settings.once:
            return writer.trigger(availableNow=True).start()
        query = writer.trigger(processingTime=f"{self._settings.trigger_ms} milliseconds").start()
        if self._settings.driver_rows:
            self._small.run_beside(query, self._jobs())
        return query

    def handled(self) -> int:
        """Return how many events were fanned out in small batches."""
        return self._small.handled

    def lag(self) -> int:
        """Return how many events wait for their jobs, counted up to 100,000."""
        return self._jobs().ask(lambda repository: repository.count_events_to_fan_out(_MOST_LAG))

    def close(self) -> None:
        """Close the database; a job that is started again reopens it."""
        self._listener.close()
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _kept(self, spark: SparkSession) -> DataFrame:
        tasks = self._settings.tasks
        if tasks is None:
            context = spark.sparkContext
            tasks = 1 if str(context.master).startswith("local") else context.defaultParallelism
        if tasks == 1:
            # One undivided batch is read and written in order.
            return keep_jobs(self._stream(spark, task_rows=self._settings.most_rows + 1), self._database)
        return keep_jobs(by_group(self._stream(spark), tasks), self._database, sort=True)

    def _stream(self, spark: SparkSession, task_rows: int = TASK_ROWS) -> DataFrame:
        """Return the waiting events without their data, which would not fit into memory."""
        reader = spark.readStream.format(registered(spark, self._database)).option("table", "events")
        reader = reader.option("columns", ",".join((*EVENT_COLUMNS, POSITION)))
        reader = reader.option("most_rows", self._settings.most_rows).option("task_rows", task_rows)
        return reader.option("least_rows", self._settings.driver_rows + 1).load()

    def _jobs(self) -> OpenedRepository:
        with self._opening:
            if self._opened is None:
                self._opened = OpenedRepository(self._database)
            return self._opened


class FannedOut(msgspec.Struct, frozen=True):
    """The counts of a micro-batch; a batch that the driver handled itself has no id."""

    batch_id: int | None
    events: int
    jobs: int
    set_aside: int


class FanOutListener(BatchListener):
    """Reports each micro-batch of fan-out to a callback."""

    def __init__(self, on_batch: Callable[[FannedOut], None]) -> None:
        self._on_batch = on_batch
        self._spark: SparkSession | None = None

    def listen(self, spark: SparkSession) -> None:
        """Register with Spark, once however often the job starts."""
        if self._spark is None:
            spark.streams.addListener(self)
            self._spark = spark

    def close(self) -> None:
        """Unregister from Spark."""
        if self._spark is not None:
            self._spark.streams.removeListener(self)
            self._spark = None

    def ended(self, batch: EndedBatch) -> None:
        """Report a micro-batch."""
        counts = batch.observed_metrics.get(NAME)
        if batch.name != NAME or counts is None:
            return
        _report(FannedOut(batch.batch_id, *(counts[name] or 0 for name in KEPT.names)), self._on_batch)


def _report(done: FannedOut, on_batch: Callable[[FannedOut], None]) -> None:
    if done.set_aside:
        log.warning("fan-out set %d damaged events aside: see the table set_aside", done.set_aside)
    on_batch(done)

"""The streaming query of fan-out: matches each micro-batch of events with the current subscriptions and stores the
jobs.

The sink stores a micro-batch in one action and reports it with the batch's id; one that is repeated finds its events
done (decision 0013). The stream takes a backlog; while few events wait, `SmallBatches` fans them out in the driver
(decision 0028).
"""

import logging
from collections.abc import Callable
from threading import Lock

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.events.fan_out.spark_plan import by_group
from penstock.events.fan_out.spark_small import SmallBatches
from penstock.events.fan_out.spark_task import KEPT, OpenedRepository, keep_jobs
from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.schemas import POSITION
from penstock.spark.sources.stream_source import rows_per_task
from penstock.spark.sources.table_source import registered

log = logging.getLogger(__name__)
NAME = "fan-out"
# A larger lag is not counted exactly.
_MOST_LAG = 100_000


class FanOutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much a micro-batch takes, how often one begins, and whether to end when nothing waits.

    `tasks` share a micro-batch, by group; None means one per core, and one for SQLite. The driver itself fans out while
    up to `few_rows` events wait, `most_rows` at most; 0 leaves all to Spark.
    """

    most_rows: int = 100_000
    few_rows: int = 100_000
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
        self._on_batch = on_batch
        self._opening = Lock()
        self._opened: OpenedRepository | None = None
        self._small = SmallBatches(
            database, settings.driver_rows, lambda done: _report(FannedOut(None, *done), on_batch)
        )

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Start the query."""
        # Opened first, so that the tables are migrated before the stream reads them.
        self._jobs()
        tasks = self._tasks(spark)

        def keep(events: DataFrame, batch_id: int) -> None:
            shares = self._kept(events, tasks).collect()
            counts = (sum(share[name] for share in shares) for name in KEPT.names)
            _report(FannedOut(batch_id, *counts), self._on_batch)

        stream = self._stream(spark, tasks)
        writer = stream.writeStream.queryName(self.name).option("checkpointLocation", checkpoint).foreachBatch(keep)
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
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _tasks(self, spark: SparkSession) -> int:
        if self._settings.tasks is not None:
            return self._settings.tasks
        # SQLite has one writer at a time.
        return 1 if self._database.dialect is Dialect.SQLITE else spark.sparkContext.defaultParallelism

    def _kept(self, events: DataFrame, tasks: int) -> DataFrame:
        if tasks == 1:
            # One undivided batch is read and written in order.
            return keep_jobs(events, self._database)
        return keep_jobs(by_group(events, tasks), self._database, sort=True)

    def _stream(self, spark: SparkSession, tasks: int) -> DataFrame:
        """Return the waiting events without their data, which would not fit into memory."""
        most_rows = self._settings.most_rows
        task_rows = most_rows + 1 if tasks == 1 else rows_per_task(most_rows, tasks)
        reader = spark.readStream.format(registered(spark, self._database)).option("table", "events")
        reader = reader.option("columns", ",".join((*EVENT_COLUMNS, POSITION)))
        reader = reader.option("most_rows", most_rows).option("task_rows", task_rows)
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


def _report(done: FannedOut, on_batch: Callable[[FannedOut], None]) -> None:
    if done.set_aside:
        log.warning("fan-out set %d damaged events aside: see the table set_aside", done.set_aside)
    on_batch(done)

"""The streaming query of fan-out: matches each micro-batch of events with the current subscriptions and stores the
jobs.

The whole plan is built once, so no micro-batch waits for the driver's Python. A transaction stores all jobs of its
events, and only for events that still wait for theirs: a task or micro-batch that Spark repeats creates none twice.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

import msgspec
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StructField, StructType

from penstock.domain.job import NewJob
from penstock.domain.pointer import DispatchMode
from penstock.edge.clock import SystemClock
from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.events.fan_out.spark_plan import Planned, by_group, in_order, packed, planner_of
from penstock.events.store import JobRepository
from penstock.spark.database import SparkDatabase
from penstock.spark.listener import BatchListener, EndedBatch
from penstock.spark.schemas import POSITION
from penstock.spark.sources.stream_source import TASK_ROWS
from penstock.spark.sources.table_source import registered
from penstock.spark.sources.valid_rows import SetAside, set_aside
from penstock.spark.workers import freeze_long_lived_objects

log = logging.getLogger(__name__)
NAME = "fan-out"
Result = TypeVar("Result")
# Large enough to share the cost of a commit, small enough to release lanes soon.
_MOST_JOBS = 4_000
# A larger lag is not counted exactly.
_MOST_LAG = 100_000

KEPT = StructType([StructField(name, LongType(), nullable=False) for name in ("events", "jobs", "set_aside")])
"""The counts of a task: events that no longer wait, jobs created for them, damaged events set aside."""

_COLUMNS = (
    "id", "tenant", "type", "event_id", "subscription_id", "group_name", "target", "pool", "content_type",
    "created_at_ms", "mode",
)  # fmt: skip

_FIELDS = tuple("group" if name == "group_name" else name for name in _COLUMNS if name != "mode")
_MODES = {mode.value: mode for mode in DispatchMode}


class FanOutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much a micro-batch takes, how often one begins, and whether to end when nothing waits.

    `tasks` share a micro-batch; None means one on a single machine, which saves the shuffle, and one per core on a
    cluster.
    """

    most_rows: int = 100_000
    trigger_ms: int = 100
    once: bool = False
    tasks: int | None = None


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
        return writer.trigger(processingTime=f"{self._settings.trigger_ms} milliseconds").start()

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
        return reader.option("most_rows", self._settings.most_rows).option("task_rows", task_rows).load()

    def _jobs(self) -> "OpenedRepository":
        with self._opening:
            if self._opened is None:
                self._opened = OpenedRepository(self._database)
            return self._opened


class FannedOut(msgspec.Struct, frozen=True):
    """The counts of a micro-batch."""

    batch_id: int
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
        done = FannedOut(batch.batch_id, *(counts[name] or 0 for name in KEPT.names))
        if done.set_aside:
            log.warning("fan-out set %d damaged events aside: see the table set_aside", done.set_aside)
        self._on_batch(done)


def keep_jobs(events: DataFrame, database: SparkDatabase, *, sort: bool = False) -> DataFrame:
    """Fan out events and store their jobs in the action that is run on the result: a row of `KEPT` per task.

    The subscriptions are those of the moment at which a task begins. `sort` if the events are not in order.
    """

    def keep(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        jobs = process_repository(database)
        planner = planner_of(packed(jobs.ask(lambda repository: repository.list_subscriptions())))
        done = [0, 0, 0]
        for batch in in_order(batches) if sort else batches:
            for planned in planner.plan(batch, _MOST_JOBS):
                done = [sum(pair) for pair in zip(done, _kept(planned, jobs, database), strict=True)]
        yield pyarrow.RecordBatch.from_pylist([dict(zip(KEPT.names, done, strict=True))], to_arrow_schema(KEPT))
        freeze_long_lived_objects("fan-out")

    return events.mapInArrow(keep, KEPT)


def _kept(planned: Planned, jobs: "OpenedRepository", database: SparkDatabase) -> tuple[int, int, int]:
    damaged = [SetAside("events", each.event_id or "", each.reason) for each in planned.set_aside]
    # Before they stop waiting, so that each event is always either waiting or set aside.
    set_aside(database, damaged)
    event_ids = [*planned.event_ids.to_pylist(), *(each.row_id for each in damaged)]
    new = new_jobs(planned.jobs)
    waited = set(jobs.ask(lambda repository: repository.fan_out(event_ids, new, jobs.clock.now_ms())))
    return len(waited), sum(job.event_id in waited for job in new), len(damaged)


def new_jobs(planned: pyarrow.RecordBatch) -> list[NewJob]:
    """Return rows of PLANNED_JOBS as the repository takes them."""
    columns = [planned.column(name).to_pylist() for name in _COLUMNS]
    return [
        NewJob(**dict(zip(_FIELDS, row, strict=True)), mode=_MODES[mode]) for *row, mode in zip(*columns, strict=True)
    ]


class OpenedRepository:
    """An open repository for threads without an event loop; it keeps its connections between micro-batches."""

    def __init__(self, database: SparkDatabase) -> None:
        self._runner = asyncio.Runner()
        self._one_at_a_time = Lock()
        self._repository = database.repository()
        self.clock = SystemClock()
        self._runner.run(self._repository.open(self.clock.now_ms()))

    def ask(self, query: Callable[[JobRepository], Coroutine[Any, Any, Result]]) -> Result:
        """Run a query and wait for its result."""
        with self._one_at_a_time:
            return self._runner.run(query(self._repository))

    def close(self) -> None:
        """Close the repository."""
        with self._one_at_a_time:
            self._runner.run(self._repository.close())
            self._runner.close()


@lru_cache(maxsize=4)
def process_repository(database: SparkDatabase) -> OpenedRepository:
    """Return the repository of this process, which Spark reuses for many tasks."""
    return OpenedRepository(database)

"""The streaming job: each micro-batch of events meets the subscriptions of its moment, and its jobs are kept.

The whole plan is made once, so that no micro-batch waits for the driver's Python.

A repository as a process of Spark's uses it: opened once, asked from threads without an event loop.

Planned jobs into the database, from the tasks that planned them.

Each transaction has all jobs of its events, and makes them only for events that still wait for theirs: what Spark does
a second time (a task, a micro-batch) finds them done and makes none twice.

What micro-batches did, told as each of them ends.
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
from penstock.spark.sources.sound_rows import SetAside, set_aside
from penstock.spark.sources.stream_source import TASK_ROWS
from penstock.spark.sources.table_source import registered
from penstock.spark.workers import spare_collections

Result = TypeVar("Result")


class OpenedRepository:
    """Jobs of a database; connections last as long as it does, so that a micro-batch does not pay for them."""

    def __init__(self, database: SparkDatabase) -> None:
        self._runner = asyncio.Runner()
        self._one_at_a_time = Lock()
        self._repository = database.repository()
        self.clock = SystemClock()
        self._runner.run(self._repository.open(self.clock.now_ms()))

    def ask(self, question: Callable[[JobRepository], Coroutine[Any, Any, Result]]) -> Result:
        """Ask, and wait for the answer."""
        with self._one_at_a_time:
            return self._runner.run(question(self._repository))

    def close(self) -> None:
        """Hang up."""
        with self._one_at_a_time:
            self._runner.run(self._repository.close())
            self._runner.close()


@lru_cache(maxsize=4)
def opened_here(database: SparkDatabase) -> OpenedRepository:
    """The repository of this process, which keeps it until it ends: Spark gives a worker many tasks."""
    return OpenedRepository(database)


# Enough that a commit costs each job little, few enough that lanes are not held for long.
_MOST_JOBS = 4_000

KEPT = StructType([StructField(name, LongType(), nullable=False) for name in ("events", "jobs", "set_aside")])
"""What a task did: events that waited no more, jobs made for them, damaged events set aside."""


def keep_jobs(events: DataFrame, database: SparkDatabase, *, sort: bool = False) -> DataFrame:
    """Fan events out and keep the jobs, in the one action that is to be run on the answer: a row of `KEPT` per task.

    The subscriptions are those of the moment at which a task begins. `sort` if the events are not in order.
    """

    def keep(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        jobs = opened_here(database)
        planner = planner_of(packed(jobs.ask(lambda repository: repository.list_subscriptions())))
        done = [0, 0, 0]
        for batch in in_order(batches) if sort else batches:
            for planned in planner.plan(batch, _MOST_JOBS):
                done = [sum(pair) for pair in zip(done, _kept(planned, jobs, database), strict=True)]
        yield pyarrow.RecordBatch.from_pylist([dict(zip(KEPT.names, done, strict=True))], to_arrow_schema(KEPT))
        spare_collections("fan-out")

    return events.mapInArrow(keep, KEPT)


def _kept(planned: Planned, jobs: OpenedRepository, database: SparkDatabase) -> tuple[int, int, int]:
    damaged = [SetAside("events", each.event_id or "", each.reason) for each in planned.set_aside]
    # Before they stop waiting: whoever looks for them finds them in one of the two.
    set_aside(database, damaged)
    event_ids = [*planned.event_ids.to_pylist(), *(each.row_id for each in damaged)]
    new = new_jobs(planned.jobs)
    waited = set(jobs.ask(lambda repository: repository.fan_out(event_ids, new, jobs.clock.now_ms())))
    return len(waited), sum(job.event_id in waited for job in new), len(damaged)


def new_jobs(planned: pyarrow.RecordBatch) -> list[NewJob]:
    """Rows of PLANNED_JOBS as the repository takes them."""
    columns = [planned.column(name).to_pylist() for name in _COLUMNS]
    return [
        NewJob(**dict(zip(_FIELDS, row, strict=True)), mode=_MODES[mode]) for *row, mode in zip(*columns, strict=True)
    ]


_COLUMNS = (
    "id", "tenant", "type", "event_id", "subscription_id", "group_name", "target", "pool", "content_type",
    "created_at_ms", "mode",
)  # fmt: skip
_FIELDS = tuple("group" if name == "group_name" else name for name in _COLUMNS if name != "mode")
_MODES = {mode.value: mode for mode in DispatchMode}


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


# Counted no further: how far behind it is matters until it is far.
_MOST_LAG = 100_000


class FanOutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much a micro-batch takes, how often one begins, and whether to end when nothing waits.

    `tasks` share a micro-batch; None is one on a single machine, which saves the shuffle, and as many as there are
    cores on a cluster.
    """

    most_rows: int = 100_000
    trigger_ms: int = 100
    once: bool = False
    tasks: int | None = None


DEFAULTS = FanOutSettings()


class FanOutJob:
    """Fan-out of the events that wait in a database."""

    name = NAME

    def __init__(
        self,
        database: SparkDatabase,
        settings: FanOutSettings = DEFAULTS,
        on_batch: Callable[[FannedOut], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._teller = Teller(on_batch)
        self._opening = Lock()
        self._opened: OpenedRepository | None = None

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Start the query."""
        # The driver's first, so that the tables are up to date before the stream reads them.
        self._jobs()
        self._teller.listen(spark)
        counts = [f.sum(name).alias(name) for name in KEPT.names]
        kept = self._kept(spark).observe(NAME, *counts)
        writer = kept.writeStream.queryName(self.name).option("checkpointLocation", checkpoint).format("noop")
        if self._settings.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.trigger_ms} milliseconds").start()

    def lag(self) -> int:
        """How many events wait for their jobs."""
        return self._jobs().ask(lambda repository: repository.count_events_to_fan_out(_MOST_LAG))

    def close(self) -> None:
        """Hang up; a job that is started again calls anew."""
        self._teller.close()
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
            # A batch is not divided, so that it is read and written in order.
            return keep_jobs(self._stream(spark, task_rows=self._settings.most_rows + 1), self._database)
        return keep_jobs(by_group(self._stream(spark), tasks), self._database, sort=True)

    def _stream(self, spark: SparkSession, task_rows: int = TASK_ROWS) -> DataFrame:
        """Events that wait, without their data: a batch of large ones would not fit into memory."""
        reader = spark.readStream.format(registered(spark, self._database)).option("table", "events")
        reader = reader.option("columns", ",".join((*EVENT_COLUMNS, POSITION)))
        return reader.option("most_rows", self._settings.most_rows).option("task_rows", task_rows).load()

    def _jobs(self) -> OpenedRepository:
        with self._opening:
            if self._opened is None:
                self._opened = OpenedRepository(self._database)
            return self._opened

"""The streaming job: each micro-batch of events meets the subscriptions of its moment, and its jobs are kept.

The whole plan is made once, so that no micro-batch waits for the driver's Python.
"""

from collections.abc import Callable
from threading import Lock

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.database import Database
from penstock.pipeline.fan_out.columns import EVENT_COLUMNS
from penstock.pipeline.fan_out.keeping import KEPT, keep_jobs
from penstock.pipeline.fan_out.opened import OpenedRepository
from penstock.pipeline.fan_out.ordering import by_group
from penstock.pipeline.fan_out.telling import NAME, FannedOut, Teller
from penstock.pipeline.schemas import POSITION
from penstock.pipeline.sources.registered import registered
from penstock.pipeline.sources.stream_source import TASK_ROWS

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
        database: Database,
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

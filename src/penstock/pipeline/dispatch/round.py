"""One round of dispatch: lanes whose turn it is are read, planned, and published from by as many tasks as it pays."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.core.plan import share_of
from penstock.jobs.lane_claiming import AwakeRange, LaneOwner
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.lane_jobs import lane_jobs
from penstock.pipeline.dispatch.lane_run import COLUMNS
from penstock.pipeline.dispatch.order import Destination, Order
from penstock.pipeline.dispatch.plan import plan_or_rest
from penstock.pipeline.dispatch.report import REPORTS, Report, summed
from penstock.pipeline.dispatch.round_call import RoundCall, announced
from penstock.pipeline.dispatch.settings import DispatchSettings
from penstock.pipeline.dispatch.task import publish_planned

Work = Callable[[Iterable[pyarrow.RecordBatch], Order], Iterator[pyarrow.RecordBatch]]


class Rounds:
    """Makes rounds: from one database to one queue."""

    def __init__(
        self, *, database: Database, destination: Destination, settings: DispatchSettings, work: Work = publish_planned
    ) -> None:
        self.database = database
        self.settings = settings
        self._destination = destination
        self._work = work
        self._small: DataFrame | None = None

    def tasks_of(self, spark: SparkSession, lanes: int) -> int:
        """How many tasks so many lanes are worth: a power of two, since groups are spread by the queue's hash."""
        most = self.settings.tasks or spark.sparkContext.defaultParallelism
        wanted = max(1, min(most, lanes // self.settings.lanes_per_task))
        return 1 << (wanted.bit_length() - 1)

    def call(
        self, ranges: Sequence[AwakeRange], owner: LaneOwner, *, now_ms: int, until_ms: int, most: int
    ) -> RoundCall:
        """A round of at most so many jobs."""
        share = share_of(most, sum(part.lanes for part in ranges), self.settings.most_per_lane)
        return RoundCall(owner=owner, ranges=tuple(ranges), share=share, now_ms=now_ms, until_ms=until_ms)

    def planned(self, spark: SparkSession, parts: int, tasks: int) -> DataFrame:
        """What the tasks get of the announced round, and in which order; it is read in so many parts."""
        jobs = lane_jobs(spark, self.database, parts)
        return plan_or_rest(jobs, sf.col("now_ms"), tasks).select(*COLUMNS)

    def run(self, spark: SparkSession, call: RoundCall) -> Report:
        """Publish; StaleLeader is in the report, whatever else ends a task for good is raised."""
        call.announce(spark)
        tasks = self.tasks_of(spark, sum(part.lanes for part in call.ranges))
        reports = self._published(spark, len(call.ranges), tasks) if tasks > 1 else self._published_by_one(spark)
        return summed([Report(**row.asDict()) for row in reports.collect()])

    def _published_by_one(self, spark: SparkSession) -> DataFrame:
        """The plan of all small rounds, made once: it has no shuffle whose outcome Spark would use again."""
        if self._small is None or self._small.sparkSession is not spark:
            self._small = self._published(spark, parts=1, tasks=1)
        return self._small

    def _published(self, spark: SparkSession, parts: int, tasks: int) -> DataFrame:
        database, destination, settings, work = self.database, self._destination, self.settings, self._work

        def publish(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            call = announced()
            order = Order(
                database=database,
                destination=destination,
                owner=call.owner,
                settings=settings,
                until_ms=call.until_ms,
            )
            return work(batches, order)

        # The last step of the plan, for one action: nothing after it could run it in part or twice.
        return self.planned(spark, parts, tasks).mapInArrow(publish, REPORTS)

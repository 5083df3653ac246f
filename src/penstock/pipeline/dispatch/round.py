"""One round of dispatch: lanes whose turn it is are read, planned, and published from by as many tasks as it pays."""

from collections.abc import Callable, Iterable, Iterator

import msgspec
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
from penstock.pipeline.dispatch.settings import DispatchSettings
from penstock.pipeline.dispatch.task import publish_planned

Work = Callable[[Iterable[pyarrow.RecordBatch], Order], Iterator[pyarrow.RecordBatch]]


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """Makes rounds: from one database to one queue."""

    database: Database
    destination: Destination
    settings: DispatchSettings
    work: Work = publish_planned

    def tasks_of(self, spark: SparkSession, lanes: int) -> int:
        """How many tasks so many lanes are worth: a power of two, since groups are spread by the queue's hash."""
        most = self.settings.tasks or spark.sparkContext.defaultParallelism
        wanted = max(1, min(most, lanes // self.settings.lanes_per_task))
        return 1 << (wanted.bit_length() - 1)

    def planned(
        self, spark: SparkSession, ranges: list[AwakeRange], owner: str, now_ms: int, most: int, tasks: int
    ) -> DataFrame:
        """What the tasks get, and in which order."""
        share = share_of(most, sum(part.lanes for part in ranges), self.settings.most_per_lane)
        jobs = lane_jobs(spark, self.database, ranges, owner=owner, share=share, now_ms=now_ms)
        return plan_or_rest(jobs.withColumn("share", sf.lit(share)), now_ms, tasks).select(*COLUMNS)

    def run(
        self,
        spark: SparkSession,
        ranges: list[AwakeRange],
        owner: LaneOwner,
        *,
        now_ms: int,
        until_ms: int,
        most: int,
    ) -> Report:
        """Publish; StaleLeader is in the report, whatever else ends a task for good is raised."""
        order = Order(
            database=self.database,
            destination=self.destination,
            owner=owner,
            settings=self.settings,
            until_ms=until_ms,
        )
        work = self.work
        tasks = self.tasks_of(spark, sum(part.lanes for part in ranges))
        planned = self.planned(spark, ranges, owner.name, now_ms, most, tasks)
        # The one action, and the last step of its plan: nothing after it could run it in part or twice.
        reports = planned.mapInArrow(lambda batches: work(batches, order), REPORTS)
        return summed(reports.toArrow())

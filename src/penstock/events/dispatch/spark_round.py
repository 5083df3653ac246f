"""One round of dispatch: lanes whose turn it is are read, planned, and published from by as many tasks as it pays."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow
from pyspark.sql import DataFrame, SparkSession

from penstock.domain.order import share_of
from penstock.events.dispatch.spark_lanes import packed_plans, planned_lanes
from penstock.events.dispatch.spark_messages import (
    REPORTS,
    Destination,
    DispatchSettings,
    Report,
    RoundCall,
    RoundRequest,
    announced,
    spread,
    summed,
    unpacked,
)
from penstock.events.dispatch.spark_task import publish_planned
from penstock.events.store import AwakeRange, LaneOwner
from penstock.spark.database import SparkDatabase

Work = Callable[[Iterable[pyarrow.RecordBatch], RoundRequest], Iterator[pyarrow.RecordBatch]]


class DispatchRounds:
    """Makes rounds: from one database to one queue."""

    def __init__(
        self,
        *,
        database: SparkDatabase,
        destination: Destination,
        settings: DispatchSettings,
        work: Work = publish_planned,
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
        """A round of at most so many jobs, or of one lane from each range."""
        settings = self.settings
        equal = share_of(most, sum(part.lanes for part in ranges), settings.most_per_lane)
        share = max(equal, min(settings.least_per_lane, settings.most_per_lane, most))
        # A lane has up to a share of rows of each ordered mode.
        rows = max(most // len(ranges), 2 * share) if ranges else 0
        return RoundCall(owner=owner, ranges=tuple(ranges), share=share, rows=rows, now_ms=now_ms, until_ms=until_ms)

    def run(self, spark: SparkSession, call: RoundCall) -> Report:
        """Publish; StaleLeader is in the report, whatever else ends a task for good is raised."""
        call.announce(spark)
        tasks = self.tasks_of(spark, sum(part.lanes for part in call.ranges))
        reports = self._by_many(spark, len(call.ranges), tasks) if tasks > 1 else self._by_one(spark)
        return summed([Report(**row.asDict()) for row in reports.collect()])

    def _by_one(self, spark: SparkSession) -> DataFrame:
        """The plan of all small rounds, made once: it has no shuffle whose outcome Spark would use again."""
        if self._small is None or self._small.sparkSession is not spark:
            database, order_of, work = self.database, self._orders(), self._work

            def publish(starts: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
                for _ in starts:
                    call = announced()
                    # All of it first: the database shall not wait for the queue with a snapshot open.
                    yield from work(list(planned_lanes(database, call.ranges, call)), order_of(call))

            self._small = spark.range(0, 1, 1, 1).mapInArrow(publish, REPORTS)
        return self._small

    def _by_many(self, spark: SparkSession, parts: int, tasks: int) -> DataFrame:
        """Read and planned in so many parts; so many tasks publish, each what the queue's hash gives it."""
        order_of, work = self._orders(), self._work

        def publish(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            return work(unpacked(batches), order_of(announced()))

        # The last step of the plan, for one action: nothing after it could run it in part or twice.
        return spread(packed_plans(spark, self.database, parts, tasks), tasks).mapInArrow(publish, REPORTS)

    def _orders(self) -> Callable[[RoundCall], RoundRequest]:
        database, destination, settings = self.database, self._destination, self.settings

        def order_of(call: RoundCall) -> RoundRequest:
            return RoundRequest(
                database=database,
                destination=destination,
                owner=call.owner,
                settings=settings,
                until_ms=call.until_ms,
            )

        return order_of

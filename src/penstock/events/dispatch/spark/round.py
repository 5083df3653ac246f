"""One round of dispatch: reads and plans the lanes whose turn it is, and publishes from them in parallel tasks."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow
from pyspark.sql import DataFrame, SparkSession

from penstock.events.dispatch.spark.lanes import packed_plans, planned_lanes
from penstock.events.dispatch.spark.messages import (
    REPORTS,
    Destination,
    DispatchReport,
    DispatchSettings,
    RoundSpec,
    TaskRequest,
    announced,
    spread,
    summed,
    unpacked,
)
from penstock.events.dispatch.spark.task import publish_planned
from penstock.events.store import AwakeRange, LaneOwner
from penstock.spark.database import SparkDatabase

Work = Callable[[Iterable[pyarrow.RecordBatch], TaskRequest], Iterator[pyarrow.RecordBatch]]


class DispatchRounds:
    """Runs rounds from one database to one queue."""

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
        self.destination = destination
        self._work = work
        self._small: DataFrame | None = None

    @property
    def default_pool(self) -> str:
        """Return the pool of jobs that name none."""
        return self.destination.pool

    def tasks_of(self, spark: SparkSession, lanes: int) -> int:
        """Return how many tasks to use for a number of lanes: a power of two, as the queue's hash spreads groups."""
        most = self.settings.tasks or spark.sparkContext.defaultParallelism
        wanted = max(1, min(most, lanes // self.settings.lanes_per_task))
        return 1 << (wanted.bit_length() - 1)

    def spec(self, ranges: Sequence[AwakeRange], owner: LaneOwner, *, now_ms: int, until_ms: int) -> RoundSpec:
        """Return the round that publishes from ranges of lanes."""
        lane_credit = self.settings.scheduler.jobs_per_lane
        return RoundSpec(owner=owner, ranges=tuple(ranges), lane_credit=lane_credit, now_ms=now_ms, until_ms=until_ms)

    def run(self, spark: SparkSession, spec: RoundSpec) -> DispatchReport:
        """Publish a round; the report names a StaleLeader, and other errors that end a task are raised."""
        spec.announce(spark)
        tasks = self.tasks_of(spark, sum(part.lanes for part in spec.ranges))
        parts = min(len(spec.ranges), spark.sparkContext.defaultParallelism)
        reports = self._by_many(spark, parts, tasks) if tasks > 1 else self._by_one(spark)
        return summed([DispatchReport(**row.asDict()) for row in reports.collect()])

    def _by_one(self, spark: SparkSession) -> DataFrame:
        """Return the plan of all small rounds, built once: it has no shuffle whose result Spark would reuse."""
        if self._small is None or self._small.sparkSession is not spark:
            database, request_for, work = self.database, self._request_factory(), self._work

            def publish(starts: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
                for _ in starts:
                    spec = announced()
                    # Read completely first, so that no snapshot stays open while the queue is written.
                    yield from work(list(planned_lanes(database, spec.ranges, spec)), request_for(spec))

            self._small = spark.range(0, 1, 1, 1).mapInArrow(publish, REPORTS)
        return self._small

    def _by_many(self, spark: SparkSession, parts: int, tasks: int) -> DataFrame:
        """Return a plan that reads in `parts` and publishes in `tasks`, each with the groups of its hash."""
        request_for, work = self._request_factory(), self._work

        def publish(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            return work(unpacked(batches), request_for(announced()))

        # The last step of a plan with one action, so that nothing runs it partly or twice.
        return spread(packed_plans(spark, self.database, parts, tasks), tasks).mapInArrow(publish, REPORTS)

    def _request_factory(self) -> Callable[[RoundSpec], TaskRequest]:
        database, destination, settings = self.database, self.destination, self.settings

        def request_for(spec: RoundSpec) -> TaskRequest:
            return TaskRequest(
                database=database,
                destination=destination,
                owner=spec.owner,
                settings=settings,
                until_ms=spec.until_ms,
            )

        return request_for

"""What a task of Spark's does with its share of the plan: claim lanes, publish their jobs in order, mark them QUEUED.

It runs inside one action and may run again, or twice at once: claims are in the name of the round, the queue knows a
job that it has, and a job is marked only in the round in which it was published.

The runs of lanes as a task gets them from the plan: each lane's jobs together, in order.

What a Python worker of Spark's keeps from task to task: an event loop, and the databases it has opened.
"""

import gc
from collections.abc import Coroutine, Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any, TypeVar

import pyarrow
import uvloop

from penstock.cluster import StaleLeader
from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.domain.pointer import DispatchMode
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock, SystemClock, stopwatch
from penstock.events.dispatch.lane_publisher import GOOD_FOR, LaneClaims, LanePublisher
from penstock.events.dispatch.settings import Counts
from penstock.events.dispatch.spark_messages import Report, RoundRequest
from penstock.events.store import JobRepository, LaneRun, Lanes, Return, rested_run
from penstock.queues import Publisher, publisher_for
from penstock.spark.database import SparkDatabase
from penstock.spark.workers import spare_collections

COLUMNS = (
    "group_key", "ordered", "turn", "may_go", "id", "mode", "pool", "publish_round", "due_at_ms", "delivery_count",
    "updated_at_ms",
)  # fmt: skip
"""What a task needs of the plan."""

_MODES = {mode.value: mode for mode in DispatchMode}


def lane_runs(batches: Iterable[pyarrow.RecordBatch], now_ms: int) -> Iterator[LaneRun]:
    """The runs in a task's rows."""
    rows = (row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True))
    for (group_key, ordered, turn), of_lane in groupby(rows, key=lambda row: row[:3]):
        jobs: list[ClaimedJob] = []
        returns: list[Return] = []
        for _, _, _, may_go, job_id, mode, pool, publish_round, due_at_ms, deliveries, updated_at_ms in of_lane:
            if may_go:
                jobs.append(ClaimedJob(job_id, group_key, _MODES[mode], pool, publish_round, due_at_ms))
                returns.append(Return(publish_round - deliveries, updated_at_ms))
        yield rested_run(LaneKey(group_key, ordered), turn, jobs, returns, now_ms)


def chunks(runs: Iterable[LaneRun], most: int) -> Iterator[list[LaneRun]]:
    """Runs by the few: of `most` jobs and idle lanes together, or of one lane that has more."""
    chunk: list[LaneRun] = []
    size = 0
    for run in runs:
        weight = max(1, len(run.jobs))
        if chunk and size + weight > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(run)
        size += weight
    if chunk:
        yield chunk


Result = TypeVar("Result")


class WorkerHome:
    """One per process; tasks come here one after the other."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self._loop = uvloop.new_event_loop()
        self._opened: dict[SparkDatabase, JobRepository] = {}

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do a task's work to its end."""
        return self._loop.run_until_complete(work)

    async def repository(self, database: SparkDatabase) -> JobRepository:
        """The jobs of a database, open."""
        if database not in self._opened:
            repository = database.repository()
            await repository.open(self.clock.now_ms())
            self._opened[database] = repository
        return self._opened[database]


@cache
def worker_home() -> WorkerHome:
    """The home of this process."""
    gc.set_threshold(20_000, 20, 50)  # as `penstock serve` sets it
    return WorkerHome()


_CHUNK = 2_000


def publish_planned(batches: Iterable[pyarrow.RecordBatch], order: RoundRequest) -> Iterator[pyarrow.RecordBatch]:
    """Publish a task's rows of the plan; one row of REPORTS."""
    home = worker_home()

    async def publish() -> Report:
        repository = await home.repository(order.database)
        task = PublishTask(order, repository.lanes, home.clock)
        return await task.run(lane_runs(batches, home.clock.now_ms()))

    yield home.run(publish()).batch()
    spare_collections("publishing")


class PublishTask:
    """The scheduler's publisher, fed with lanes that the plan has chosen."""

    def __init__(self, order: RoundRequest, lanes: Lanes, clock: Clock) -> None:
        self._order = order
        self._clock = clock
        self._counts = Counts()
        self._backoff = Backoff(1.0, 1.0)
        self._claims = LaneClaims(lanes, order.owner, order.settings.scheduler, clock)
        self._lag_s = 0.0
        self._is_stale = False

    async def run(self, runs: Iterator[LaneRun]) -> Report:
        """Publish until there is no more, the queue is in trouble, another node leads, or it is too late."""
        queue = publisher_for(self._order.destination.queue_uri)
        try:
            await queue.open()
        except Exception as error:
            self._backoff.failed()
            self._counts.trouble = f"the queue cannot be opened: {error}"
            return self._report()
        try:
            await self._publish(runs, self._lane_publisher(queue))
            # What fails here fails the task: it is tried again in the same name, and finds its claims.
            await self._claims.settle()
        except StaleLeader:
            self._is_stale = True
        finally:
            await queue.close()
        return self._report()

    async def _publish(self, runs: Iterator[LaneRun], lanes: LanePublisher) -> None:
        for chunk in chunks(runs, _CHUNK):
            if not self._may_publish() or self._backoff.delay_s:
                break
            await lanes.take(chunk, stopwatch() + self._order.settings.scheduler.claim_lease_s * GOOD_FOR)
            self._lag_s = max(self._lag_s, self._counts.lag_s)
            await lanes.has_room(_CHUNK)
        await lanes.has_room(1)

    def _lane_publisher(self, queue: Publisher) -> LanePublisher:
        return LanePublisher(
            self._claims,
            _Opened(queue),
            self._order.destination.pointers(),
            self._backoff,
            self._counts,
            self._clock,
            most_lanes=lambda: self._order.settings.groups_at_once,
            may_publish=self._may_publish,
        )

    def _may_publish(self) -> bool:
        return self._clock.now_ms() < self._order.until_ms

    def _report(self) -> Report:
        counts = self._counts
        return Report(
            claimed=counts.claimed,
            published=counts.published,
            failed=counts.publish_failures,
            lag_ms=round(self._lag_s * 1000),
            trouble=counts.trouble,
            in_trouble=self._backoff.delay_s > 0,
            is_stale=self._is_stale,
        )


class _Opened:
    """A publisher that is open already."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def opened(self) -> Publisher:
        """It."""
        return self._publisher

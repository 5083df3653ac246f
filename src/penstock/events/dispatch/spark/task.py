"""What a Spark task does with its share of the plan: claim lanes, publish their jobs in order, and mark them QUEUED.

It runs inside one action and may run again, or twice at once: claims belong to the round, the queue deduplicates jobs,
and a job is marked only in the round in which it was published.
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
from penstock.domain.order import LaneKey, is_high_priority
from penstock.domain.pointer import DispatchMode
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock, SystemClock, stopwatch
from penstock.events.dispatch.lane_claims import LaneClaims
from penstock.events.dispatch.lane_publisher import USABLE_SHARE, LanePublisher
from penstock.events.dispatch.pool_queues import DispatchQueue
from penstock.events.dispatch.settings import Counts
from penstock.events.dispatch.spark.messages import DispatchReport, TaskRequest
from penstock.events.store import JobRepository, LaneOffer, LaneRun, Return, credited_run, return_of
from penstock.queues import Publisher
from penstock.spark.database import SparkDatabase
from penstock.spark.workers import freeze_long_lived_objects

COLUMNS = (
    "group_key", "ordered", "turn", "lane_pool", "on_their_way", "may_go", "id", "mode", "pool", "publish_round",
    "due_at_ms", "delivery_count", "updated_at_ms", "sequence",
)  # fmt: skip
"""What a task needs of the plan."""

_MODES = {mode.value: mode for mode in DispatchMode}
_CHUNK = 2_000
Result = TypeVar("Result")


def publish_planned(batches: Iterable[pyarrow.RecordBatch], request: TaskRequest) -> Iterator[pyarrow.RecordBatch]:
    """Publish a task's rows of the plan, and return one row of REPORTS."""
    state = worker_state()

    async def publish() -> DispatchReport:
        repository = await state.repository(request.database)
        task = PublishTask(request, repository, state.clock)
        lane_credit = request.settings.scheduler.jobs_per_lane
        return await task.run(lane_runs(batches, lane_credit, state.clock.now_ms()))

    yield state.run(publish()).batch()
    freeze_long_lived_objects("publishing")


class PublishTask:
    """The scheduler's publisher, fed with the lanes of the plan."""

    def __init__(self, request: TaskRequest, jobs: JobRepository, clock: Clock) -> None:
        self._jobs = jobs
        self._request = request
        self._clock = clock
        self._counts = Counts()
        self._backoff = Backoff(1.0, 1.0)
        self._claims = LaneClaims(jobs.lanes, request.owner, request.settings.scheduler, clock)
        self._lag_s = 0.0
        self._is_stale = False

    async def run(self, runs: Iterator[LaneRun]) -> DispatchReport:
        """Publish until nothing is left, the queue fails, another node leads, or the time is up."""
        destination = self._request.destination
        queue = DispatchQueue(self._jobs, destination.queue_uri, per_pool=destination.queue_per_pool).publisher
        try:
            await queue.open()
        except Exception as error:
            self._backoff.failed()
            self._counts.trouble = f"the queue cannot be opened: {error}"
            return self._report()
        try:
            await self._publish(runs, self._lane_publisher(queue))
            # A failure here fails the task: it runs again for the same owner and finds its claims.
            await self._claims.settle()
        except StaleLeader:
            self._is_stale = True
        finally:
            await queue.close()
        return self._report()

    async def _publish(self, runs: Iterator[LaneRun], lanes: LanePublisher) -> None:
        for chunk in chunks(_each_once(runs), _CHUNK):
            if not self._may_publish() or self._backoff.delay_s:
                break
            await lanes.take(chunk, stopwatch() + self._request.settings.scheduler.claim_lease_s * USABLE_SHARE)
            self._lag_s = max(self._lag_s, self._counts.lag_s)
            await lanes.has_room(_CHUNK)
        await lanes.has_room(1)

    def _lane_publisher(self, queue: Publisher) -> LanePublisher:
        return LanePublisher(
            self._claims,
            _Opened(queue),
            self._request.destination.pointers(),
            self._backoff,
            self._counts,
            self._clock,
            most_lanes=lambda: self._request.settings.groups_at_once,
            may_publish=self._may_publish,
        )

    def _may_publish(self) -> bool:
        return self._clock.now_ms() < self._request.until_ms

    def _report(self) -> DispatchReport:
        counts = self._counts
        return DispatchReport(
            claimed=counts.claimed,
            published=counts.published,
            failed=counts.publish_failures,
            lag_ms=round(self._lag_s * 1000),
            trouble=counts.trouble,
            in_trouble=self._backoff.delay_s > 0,
            is_stale=self._is_stale,
        )


class _Opened:
    """A publisher that is already open."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def opened(self) -> Publisher:
        """Return the publisher."""
        return self._publisher


def lane_runs(batches: Iterable[pyarrow.RecordBatch], lane_credit: int, now_ms: int) -> Iterator[LaneRun]:
    """Return the runs of lanes in a task's rows: the jobs of each lane, in order, as far as its credit goes."""
    rows = (row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True))
    for (group_key, ordered, turn, lane_pool, on_their_way), of_lane in groupby(rows, key=lambda row: row[:5]):
        jobs: list[ClaimedJob] = []
        returns: list[Return] = []
        tried: list[bool] = []
        for *_, may_go, job_id, mode, pool, publish_round, due_at_ms, deliveries, updated_at_ms, sequence in of_lane:
            if may_go:
                high = is_high_priority(sequence)
                jobs.append(ClaimedJob(job_id, group_key, _MODES[mode], pool, publish_round, due_at_ms, high))
                returns.append(return_of(publish_round, deliveries, due_at_ms, updated_at_ms))
                tried.append(deliveries > 0 and _MODES[mode] is DispatchMode.BLOCK_ON_ERROR)
        offer = LaneOffer(jobs, returns, tried[:1] == [True], on_their_way)
        yield credited_run(LaneKey(group_key, ordered), turn, lane_pool, offer, lane_credit, now_ms)


def _each_once(runs: Iterable[LaneRun]) -> Iterator[LaneRun]:
    """Return runs without a second one of a lane: a repeated round may find its claimed lanes in two ranges."""
    seen: set[LaneKey] = set()
    for run in runs:
        if run.lane not in seen:
            seen.add(run.lane)
            yield run


def chunks(runs: Iterable[LaneRun], most: int) -> Iterator[list[LaneRun]]:
    """Return runs in chunks of up to `most` jobs and idle lanes, or of one lane that has more."""
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


class WorkerState:
    """What a Python worker keeps between tasks: an event loop and open databases. Tasks use it one at a time."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self._loop = uvloop.new_event_loop()
        self._opened: dict[SparkDatabase, JobRepository] = {}

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a task's coroutine to its end."""
        return self._loop.run_until_complete(work)

    async def repository(self, database: SparkDatabase) -> JobRepository:
        """Return the open repository of a database."""
        if database not in self._opened:
            repository = database.repository()
            await repository.open(self.clock.now_ms())
            self._opened[database] = repository
        return self._opened[database]


@cache
def worker_state() -> WorkerState:
    """Return the state of this process."""
    gc.set_threshold(20_000, 20, 50)  # as `penstock serve` sets it
    return WorkerState()

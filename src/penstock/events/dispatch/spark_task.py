"""What a task of Spark's does with its share of the plan: claim lanes, publish their jobs in order, mark them QUEUED.

It runs inside one action and may run again, or twice at once: claims are in the name of the round, the queue knows a
job that it has, and a job is marked only in the round in which it was published.

The jobs of one lane as a task gets them from the plan: together, in order.

The lanes that one task has claimed, until what it took of them is in the queue and marked.

What a Python worker of Spark's keeps from task to task: an event loop, and the databases it has opened.
"""

import gc
import logging
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any, TypeVar

import msgspec
import pyarrow
import uvloop

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.domain.pointer import DispatchMode
from penstock.edge.clock import Clock, SystemClock, stopwatch
from penstock.events.dispatch.job_dispatcher import JobDispatcher
from penstock.events.dispatch.message_group_dispatcher import MessageGroupDispatcher, return_pause_s
from penstock.events.dispatch.publisher import Backoff
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.dispatch.spark_messages import Order, Report
from penstock.events.errors import StaleLeader
from penstock.events.store.lanes import LaneOwner, Lanes, lane_key
from penstock.events.store.repository import JobRepository
from penstock.queues.open import publisher_for
from penstock.queues.port import Publisher
from penstock.spark.database import Database
from penstock.spark.workers import spare_collections

COLUMNS = (
    "group_key", "ordered", "turn", "may_go", "id", "mode", "pool", "publish_round", "due_at_ms", "updated_at_ms",
)  # fmt: skip
"""What a task needs of the plan."""

_MODES = {mode.value: mode for mode in DispatchMode}


class LaneRun(msgspec.Struct, frozen=True):
    """What a lane has to give, nothing perhaps; `turn` is the one it had when it was read."""

    lane: LaneKey
    turn: int
    jobs: list[ClaimedJob]
    rests_until_ms: int
    """Jobs that came back from the queue again and again wait until then (`return_pause_s`)."""


def lane_runs(batches: Iterable[pyarrow.RecordBatch], now_ms: int) -> Iterator[LaneRun]:
    """The runs in a task's rows."""
    rows = (row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True))
    for (group_key, ordered, turn), of_lane in groupby(rows, key=lambda row: row[:3]):
        jobs, rests_until_ms = [], 0
        for _, _, _, may_go, job_id, mode, pool, publish_round, due_at_ms, updated_at_ms in of_lane:
            if may_go:
                jobs.append(ClaimedJob(job_id, group_key, _MODES[mode], pool, publish_round, None, due_at_ms))
                if ordered and (pause_s := return_pause_s(publish_round)):
                    # It came back when it was written last, but not later than now, whatever that clock said.
                    rests_until_ms = max(rests_until_ms, min(updated_at_ms, now_ms) + round(pause_s * 1000))
        yield LaneRun(LaneKey(group_key, ordered), turn, jobs, rests_until_ms)


def chunks(runs: Iterable[LaneRun], most: int) -> Iterator[list[LaneRun]]:
    """Runs by the few: of so many jobs and idle lanes together, or of one lane that has more."""
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


log = logging.getLogger(__name__)

_CROWD = 1000


class TaskLanes:
    """Claims lanes, tells what is in the queue, and leaves nothing behind; what `JobDispatcher` reports to."""

    def __init__(self, lanes: Lanes, owner: LaneOwner, settings: SchedulerSettings, clock: Clock) -> None:
        self._lanes = lanes
        self._owner = owner
        self._clock = clock
        self._claim_ms = round(settings.claim_lease_s * 1000)
        self._pause_ms = round(settings.poll_interval_s * 1000)
        self._stale_after_ms = round(settings.stale_after_s * 1000)
        self._held: set[LaneKey] = set()
        self._failed: set[LaneKey] = set()
        self._failed_jobs = 0
        self._unmarked: list[ClaimedJob] = []

    @property
    def is_crowded(self) -> bool:
        """Whether more jobs failed than a few groups in trouble explain."""
        return self._failed_jobs > _CROWD

    async def take(self, runs: Sequence[LaneRun]) -> list[ClaimedJob]:
        """Claim lanes; the jobs to publish now. Lanes with nothing to give go to sleep, others may have to rest."""
        now_ms = self._clock.now_ms()
        idle = [run.lane for run in runs if not run.jobs]
        if idle:
            await self._lanes.let_sleep(idle, self._owner, now_ms)
        wanted = {run.lane: run for run in runs if run.jobs}
        if not wanted:
            return []
        turns = {lane: run.turn for lane, run in wanted.items()}
        claimed = await self._lanes.claim(turns, self._owner, now_ms, self._claim_ms)
        resting = [(lane, wanted[lane].rests_until_ms) for lane in claimed if wanted[lane].rests_until_ms > now_ms]
        if resting:
            await self._lanes.hold(resting, self._owner)
        self._held.update(set(claimed) - {lane for lane, _ in resting})
        return [job for lane in claimed if lane in self._held for job in wanted[lane].jobs]

    async def queued(self, jobs: Sequence[ClaimedJob]) -> None:
        """These are in the queue; a lane of which none failed is done."""
        try:
            await self._mark(jobs)
        except StaleLeader:
            raise
        except Exception:
            self._unmarked += jobs
            raise

    def add(self, jobs: Sequence[ClaimedJob]) -> None:
        """These could not be published: nothing of their lanes goes for a while (SCHED-PUBLISH-2)."""
        self._failed.update(lane_key(job) for job in jobs)
        self._failed_jobs += len(jobs)

    async def settle(self) -> None:
        """Mark what could not be marked before, keep failed lanes back for a while, give back what was not tried.

        What fails here fails the task: it is tried again in the same name, and finds its claims.
        """
        if self._unmarked:
            await self._mark(self._unmarked)
        until_ms = self._clock.now_ms() + self._pause_ms
        if failed := self._held & self._failed:
            await self._lanes.hold([(lane, until_ms) for lane in failed], self._owner)
        if left := self._held - self._failed:
            await self._lanes.mark_published([], list(left), self._owner, until_ms, until_ms)

    async def _mark(self, jobs: Sequence[ClaimedJob]) -> None:
        now_ms = self._clock.now_ms()
        done = list(self._held.intersection(map(lane_key, jobs)) - self._failed)
        await self._lanes.mark_published(jobs, done, self._owner, now_ms, now_ms + self._stale_after_ms)
        self._held.difference_update(done)


Result = TypeVar("Result")


class WorkerHome:
    """One per process; tasks come here one after the other."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self._loop = uvloop.new_event_loop()
        self._opened: dict[Database, JobRepository] = {}

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do a task's work to its end."""
        return self._loop.run_until_complete(work)

    async def repository(self, database: Database) -> JobRepository:
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
# As the inline scheduler: a claim is used for the first half of its time.
_GOOD_FOR = 0.5


def publish_planned(batches: Iterable[pyarrow.RecordBatch], order: Order) -> Iterator[pyarrow.RecordBatch]:
    """Publish a task's rows of the plan; one row of REPORTS."""
    home = worker_home()

    async def publish() -> Report:
        repository = await home.repository(order.database)
        lanes = TaskLanes(repository.lanes, order.owner, order.settings.scheduler, home.clock)
        return await PublishTask(order, lanes, home.clock).run(lane_runs(batches, home.clock.now_ms()))

    yield home.run(publish()).batch()
    spare_collections("publishing")


class PublishTask:
    """The scheduler's dispatcher, fed with lanes instead of single claims."""

    def __init__(self, order: Order, lanes: TaskLanes, clock: Clock) -> None:
        self._order = order
        self._lanes = lanes
        self._clock = clock
        self._counts = Counts()
        self._backoff = Backoff(1.0, 1.0)
        self._lag_ms = 0
        self._is_stale = False

    async def run(self, runs: Iterator[LaneRun]) -> Report:
        """Publish until there is no more, the queue is in trouble, another node leads, or it is too late."""
        publisher = publisher_for(self._order.destination.queue_uri)
        try:
            await publisher.open()
        except Exception as error:
            self._backoff.failed()
            self._counts.trouble = f"the queue cannot be opened: {error}"
            return self._report()
        try:
            await self._publish(runs, publisher)
            await self._lanes.settle()
        except StaleLeader:
            self._is_stale = True
        finally:
            await publisher.close()
        return self._report()

    async def _publish(self, runs: Iterator[LaneRun], publisher: Publisher) -> None:
        settings = self._order.settings
        dispatcher = MessageGroupDispatcher(
            self._job_dispatcher(publisher).dispatch,
            lambda: settings.groups_at_once,
            stopwatch,
            # Lanes whose jobs have to rest are left where they are.
            pause_s=lambda _: 0.0,
        )
        for chunk in chunks(runs, _CHUNK):
            if not self._may_publish() or self._backoff.delay_s:
                break
            good_until_s = stopwatch() + settings.scheduler.claim_lease_s * _GOOD_FOR
            jobs = await self._lanes.take(chunk)
            self._counts.claimed += len(jobs)
            now_ms = self._clock.now_ms()
            self._lag_ms = max(self._lag_ms, max((now_ms - job.due_at_ms for job in jobs), default=0))
            dispatcher.submit(jobs, good_until_s)
            await dispatcher.has_room(_CHUNK)
        await dispatcher.has_room(1)

    def _job_dispatcher(self, publisher: Publisher) -> JobDispatcher:
        return JobDispatcher(
            self._lanes,
            _Opened(publisher),
            self._order.destination.pointers(),
            self._lanes,
            self._backoff,
            self._counts,
            self._clock,
            self._may_publish,
        )

    def _may_publish(self) -> bool:
        return self._clock.now_ms() < self._order.until_ms

    def _report(self) -> Report:
        counts = self._counts
        return Report(
            claimed=counts.claimed,
            published=counts.published,
            failed=counts.publish_failures,
            lag_ms=self._lag_ms,
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

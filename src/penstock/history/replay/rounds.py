"""A task's jobs by group: one delivery of a group at a time and in order, groups beside each other.

How far a task reads ahead: so many jobs and bytes, and no more until some are done.

Which task delivers which jobs: all of a group by one task, in order.
"""

import asyncio
from collections import deque
from collections.abc import Mapping

import pyarrow
import pyarrow.compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType

from penstock.domain.job import DispatchJob
from penstock.domain.message import fnv1a_32
from penstock.domain.pointer import DispatchMode
from penstock.domain.replay import ReplayProgress
from penstock.domain.subscription import Subscription
from penstock.events.store import ReplayLoad
from penstock.history.replay.visit import End, Outcomes, Visits

MOST_JOBS = 1000
MOST_BYTES = 32 * 1024 * 1024


class Room:
    """A place to wait for what was read before."""

    def __init__(self, most_jobs: int = MOST_JOBS, most_bytes: int = MOST_BYTES) -> None:
        self._most_jobs = most_jobs
        self._most_bytes = most_bytes
        self._jobs = 0
        self._bytes = 0
        self._left = asyncio.Event()

    async def enter(self, size_bytes: int) -> None:
        """Wait until there is room; one job always has some, whatever its size."""
        while self._jobs >= self._most_jobs or (self._jobs and self._bytes + size_bytes > self._most_bytes):
            self._left.clear()
            await self._left.wait()
        self._jobs += 1
        self._bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """A job is done."""
        self._jobs -= 1
        self._bytes -= size_bytes
        self._left.set()


class GroupRounds:
    """Takes jobs in order and delivers them; the next of a group only after the one before is written down."""

    def __init__(self, visits: Visits, outcomes: Outcomes, tasks: asyncio.TaskGroup) -> None:
        self.subscriptions: Mapping[str, Subscription] = {}
        self._visits = visits
        self._outcomes = outcomes
        self._tasks = tasks
        self._room = Room()
        self._lanes: dict[str, deque[ReplayLoad]] = {}
        self._failed: set[str] = set()
        """Groups of which a job was given up: later BLOCK_ON_ERROR ones are held back."""

    async def take(self, load: ReplayLoad) -> None:
        """A job that is to be delivered; returns once there is room for more."""
        await self._room.enter(_size_bytes(load))
        job = load.job
        # No other job's id is a group's key: an IMMEDIATE job waits for nobody.
        lane = job.id if job.mode is DispatchMode.IMMEDIATE else job.group_key
        waiting = self._lanes.get(lane)
        if waiting is not None:
            waiting.append(load)
            return
        self._lanes[lane] = deque((load,))
        self._tasks.create_task(self._run(lane), name="deliver a group")

    async def _run(self, lane: str) -> None:
        waiting = self._lanes[lane]
        while waiting:
            load = waiting.popleft()
            if not self._outcomes.stopped.is_set():
                await self._see_to(load)
            self._room.leave(_size_bytes(load))
        del self._lanes[lane]

    async def _see_to(self, load: ReplayLoad) -> None:
        if self._is_held_back(load.job):
            await self._outcomes.keep(None, ReplayProgress(held_back=1))
        elif (
            await self._visits.pay(load, self.subscriptions) is End.GIVEN_UP
            and load.job.mode is not DispatchMode.IMMEDIATE
        ):
            self._failed.add(load.job.group_key)

    def _is_held_back(self, job: DispatchJob) -> bool:
        subscription = self.subscriptions.get(job.subscription_id or "")
        if subscription is not None and subscription.paused:
            return True
        return job.mode is DispatchMode.BLOCK_ON_ERROR and job.group_key in self._failed


def _size_bytes(load: ReplayLoad) -> int:
    return len(load.job.payload or b"") + (0 if load.event is None else len(load.event.data))


PART = "part"


def with_part(jobs: DataFrame, count: int) -> DataFrame:
    """Jobs with the number of the task that has their group."""
    return jobs.withColumn(PART, (hash_of("group_key") % f.lit(count)).cast("int"))


def planned(jobs: DataFrame, count: int) -> DataFrame:
    """`part` and `id`: each part in one partition, in the order in which jobs stand in their groups.

    The oldest of all groups come first, so that a task meets many groups soon.
    """
    in_order = (
        with_part(jobs, count).repartitionById(count, PART).sortWithinPartitions("sequence", "created_at_ms", "id")
    )
    return in_order.select(PART, "id")


def part_counts(jobs: DataFrame, count: int) -> DataFrame:
    """`part`, and how many jobs and groups it has; a group is in one part only."""
    return (
        with_part(jobs, count)
        .groupBy(PART)
        .agg(f.count("id").alias("jobs"), f.count_distinct("group_key").alias("groups"))
    )


@f.arrow_udf(returnType=LongType())  # type: ignore[attr-defined, untyped-decorator]
def hash_of(keys: pyarrow.Array) -> pyarrow.Array:
    """The FNV-1a hash of texts, as the queue and the router know it."""
    distinct = pyarrow.compute.dictionary_encode(keys)
    hashes = pyarrow.array([fnv1a_32(key) for key in distinct.dictionary.to_pylist()], pyarrow.int64())
    return hashes.take(distinct.indices)

"""Delivers a task's jobs by group: one delivery of a group at a time and in order, groups in parallel."""

import asyncio
from collections import deque
from collections.abc import Mapping

from penstock.domain.job import DispatchJob
from penstock.domain.pointer import DispatchMode
from penstock.domain.replay import ReplayProgress
from penstock.domain.subscription import Subscription
from penstock.events.store import ReplayLoad
from penstock.history.replay.delivery import DeliveryEnd, JobDelivery, OutcomeWriter

MOST_JOBS = 1000
MOST_BYTES = 32 * 1024 * 1024


class GroupDelivery:
    """Delivers jobs in the order in which they come; the next of a group after the one before is recorded."""

    def __init__(self, deliveries: JobDelivery, outcomes: OutcomeWriter, tasks: asyncio.TaskGroup) -> None:
        self.subscriptions: Mapping[str, Subscription] = {}
        self._deliveries = deliveries
        self._outcomes = outcomes
        self._tasks = tasks
        self._ahead = ReadAhead()
        self._lanes: dict[str, deque[ReplayLoad]] = {}
        self._failed: set[str] = set()
        """Groups with a failed job: later BLOCK_ON_ERROR jobs are held back."""

    async def take(self, load: ReplayLoad) -> None:
        """Take a job to deliver; return once there is room for more."""
        await self._ahead.acquire(_size_bytes(load))
        job = load.job
        # An IMMEDIATE job has a lane of its own, because no job's id is a group's key.
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
                await self._deliver(load)
            self._ahead.release(_size_bytes(load))
        del self._lanes[lane]

    async def _deliver(self, load: ReplayLoad) -> None:
        if self._is_held_back(load.job):
            await self._outcomes.record(None, ReplayProgress(held_back=1))
        elif (
            await self._deliveries.deliver(load, self.subscriptions) is DeliveryEnd.FAILED
            and load.job.mode is not DispatchMode.IMMEDIATE
        ):
            self._failed.add(load.job.group_key)

    def _is_held_back(self, job: DispatchJob) -> bool:
        subscription = self.subscriptions.get(job.subscription_id or "")
        if subscription is not None and subscription.paused:
            return True
        return job.mode is DispatchMode.BLOCK_ON_ERROR and job.group_key in self._failed


class ReadAhead:
    """Limits how far a task reads ahead, by jobs and bytes."""

    def __init__(self, most_jobs: int = MOST_JOBS, most_bytes: int = MOST_BYTES) -> None:
        self._most_jobs = most_jobs
        self._most_bytes = most_bytes
        self._jobs = 0
        self._bytes = 0
        self._released = asyncio.Event()

    async def acquire(self, size_bytes: int) -> None:
        """Wait until there is room; a single job always fits, whatever its size."""
        while self._jobs >= self._most_jobs or (self._jobs and self._bytes + size_bytes > self._most_bytes):
            self._released.clear()
            await self._released.wait()
        self._jobs += 1
        self._bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Note that a job is done."""
        self._jobs -= 1
        self._bytes -= size_bytes
        self._released.set()


def _size_bytes(load: ReplayLoad) -> int:
    return len(load.job.payload or b"") + (0 if load.event is None else len(load.event.data))

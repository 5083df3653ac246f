"""A task's jobs by group: one delivery of a group at a time and in order, groups beside each other."""

import asyncio
from collections import deque
from collections.abc import Mapping

from penstock.domain.job import DispatchJob
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.replay import ReplayProgress
from penstock.events.store.replays import Load
from penstock.pipeline.replay.outcomes import Outcomes
from penstock.pipeline.replay.room import Room
from penstock.pipeline.replay.visit import End, Visits


class Rounds:
    """Takes jobs in order and delivers them; the next of a group only after the one before is written down."""

    def __init__(self, visits: Visits, outcomes: Outcomes, tasks: asyncio.TaskGroup) -> None:
        self.subscriptions: Mapping[str, Subscription] = {}
        self._visits = visits
        self._outcomes = outcomes
        self._tasks = tasks
        self._room = Room()
        self._lanes: dict[str, deque[Load]] = {}
        self._failed: set[str] = set()
        """Groups of which a job was given up: later BLOCK_ON_ERROR ones are held back."""

    async def take(self, load: Load) -> None:
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

    async def _see_to(self, load: Load) -> None:
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


def _size_bytes(load: Load) -> int:
    return len(load.job.payload or b"") + (0 if load.event is None else len(load.event.data))

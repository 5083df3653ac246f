"""The lanes that one task has claimed, until what it took of them is in the queue and marked."""

import logging
from collections.abc import Sequence

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.edge.clock import Clock
from penstock.jobs.errors import StaleLeader
from penstock.jobs.lane_claiming import LaneOwner, lane_key
from penstock.jobs.lanes import Lanes
from penstock.pipeline.dispatch.lane_run import LaneRun
from penstock.scheduler.settings import SchedulerSettings

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
        """These could not be published: nothing of their lanes goes for a while (ruling 18)."""
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

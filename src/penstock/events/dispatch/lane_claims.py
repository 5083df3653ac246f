"""The lanes that one owner has claimed, until the jobs taken from them are in the queue and marked.

Both engines use it.
"""

from collections.abc import Collection, Mapping, Sequence

from penstock.cluster import StaleLeader
from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.edge.clock import Clock
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.store import LaneOwner, LaneRun, Lanes


class LaneClaims:
    """Claims lanes, marks published jobs and releases the lanes; raises StaleLeader once another node leads.

    Claims left by a crash expire. The jobs are then published again, and the queue's deduplication absorbs them.
    """

    def __init__(self, lanes: Lanes, owner: LaneOwner, settings: SchedulerSettings, clock: Clock) -> None:
        self._lanes = lanes
        self._owner = owner
        self._clock = clock
        self._claim_ms = round(settings.claim_lease_s * 1000)
        self._pause_ms = round(settings.poll_interval_s * 1000)
        self._stale_after_ms = round(settings.stale_after_s * 1000)
        self._lane_credit = settings.jobs_per_lane
        # In order, so that released lanes keep their turns; each with the job it waits for once its run is published.
        self._held: dict[LaneKey, str | None] = {}
        self._unmarked: list[tuple[Sequence[ClaimedJob], Mapping[LaneKey, str | None]]] = []

    async def take(self, runs: Sequence[LaneRun]) -> list[LaneRun]:
        """Claim lanes and return the runs to publish now; idle lanes go to sleep, and others may have to rest."""
        now_ms = self._clock.now_ms()
        idle = [run.lane for run in runs if not run.jobs]
        if idle:
            await self._lanes.let_sleep(idle, self._owner, now_ms, self._lane_credit)
        turns = {run.lane: run.turn for run in runs if run.jobs}
        if not turns:
            return []
        claimed = set(await self._lanes.claim(turns, self._owner, now_ms, self._claim_ms))
        taken = [run for run in runs if run.lane in claimed and run.jobs]
        resting = [(run.lane, run.rests_until_ms) for run in taken if run.rests_until_ms > now_ms]
        if resting:
            await self._lanes.hold(resting, self._owner)
        going = [run for run in taken if run.rests_until_ms <= now_ms]
        self._held.update((run.lane, run.waits_for) for run in going)
        return going

    async def published(self, jobs: Sequence[ClaimedJob], done: Collection[LaneKey]) -> None:
        """Mark jobs that are in the queue, and release the lanes that are done."""
        released = {lane: self._held.get(lane) for lane in done}
        try:
            await self._mark(jobs, released)
        except StaleLeader:
            raise
        except Exception:
            self._unmarked.append((jobs, released))
            raise

    async def failed(self, lanes: Collection[LaneKey]) -> None:
        """Hold lanes for one poll interval, because a job of each could not be published and none may pass it."""
        until_ms = self._clock.now_ms() + self._pause_ms
        await self._lanes.hold([(lane, until_ms) for lane in lanes], self._owner)
        self._forget(lanes)

    async def settle(self) -> None:
        """Mark what could not be marked before, and release the lanes that were not tried."""
        while self._unmarked:
            await self._mark(*self._unmarked[0])
            del self._unmarked[0]
        if self._held:
            await self._mark([], dict.fromkeys(self._held))

    async def _mark(self, jobs: Sequence[ClaimedJob], done: Mapping[LaneKey, str | None]) -> None:
        now_ms = self._clock.now_ms()
        await self._lanes.mark_published(jobs, done, self._owner, now_ms, now_ms + self._stale_after_ms)
        self._forget(done)

    def _forget(self, lanes: Collection[LaneKey]) -> None:
        for lane in lanes:
            self._held.pop(lane, None)

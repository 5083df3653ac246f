"""Reads the lanes whose turn it is and publishes them: when signalled, when a job is due, and every few seconds."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from penstock.cluster import StaleLeader
from penstock.domain.pace.credit import CreditBook
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause
from penstock.events.dispatch.lane_publisher import USABLE_SHARE, LanePublisher, OpenedPublisher
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.store import JobRepository

log = logging.getLogger(__name__)
_GROWTH = 4
_FIRST_PAUSE_S = 0.5


class PendingJobPoller:
    """Polls until it is cancelled or another node leads; one poll at a time."""

    def __init__(
        self,
        jobs: JobRepository,
        lanes: LanePublisher,
        queue: OpenedPublisher,
        credit: CreditBook,
        pace: "ClaimPace",
        queue_backoff: Backoff,
        counts: Counts,
        settings: SchedulerSettings,
        clock: Clock,
        seconds: Callable[[], float],
        pause: Pause,
        most_awake: int | None = None,
    ) -> None:
        """Leave the lanes to others while more than `most_awake` are awake."""
        self._jobs = jobs
        self._lanes = lanes
        self._queue = queue
        self._credit = credit
        self._pace = pace
        self._queue_backoff = queue_backoff
        self._own_backoff = Backoff(_FIRST_PAUSE_S, settings.poll_interval_s)
        self._counts = counts
        self._poll_interval_s = settings.poll_interval_s
        self._lane_credit = settings.jobs_per_lane
        self._good_for_s = settings.claim_lease_s * USABLE_SHARE
        self._clock = clock
        self._seconds = seconds
        self._pause = pause
        self._most_awake = most_awake

    async def run(self) -> None:
        """Poll until cancelled; log errors and go on. StaleLeader is raised when another node leads."""
        while True:
            try:
                await self.poll()
                await wait_for_work(self._jobs, self._clock, self._poll_interval_s, self._credit.next_look_ms())
            except StaleLeader:
                raise
            except Exception as error:
                self._own_backoff.failed()
                self._counts.errors += 1
                self._counts.trouble = f"jobs could not be claimed: {error}"
                log.exception("a poll failed", extra={"again_in_s": self._own_backoff.delay_s})
                await self._pause(self._own_backoff.delay_s)
            else:
                self._own_backoff.succeeded()

    async def poll(self) -> None:
        """Claim lanes and publish from them until no lane is ready."""
        await self._queue.opened()
        while True:
            await self._until_there_is_room()
            good_until_s = self._seconds() + self._good_for_s
            now_ms = self._clock.now_ms()
            await self._jobs.do_chores(now_ms)
            if await self._is_left_to_others():
                return
            runs = await self._jobs.lanes.read(now_ms, self._pace.batch, self._credit, self._lane_credit)
            self._pace.claimed(await self._lanes.take(runs, good_until_s))
            if not runs:
                return

    async def _is_left_to_others(self) -> bool:
        most = self._most_awake
        return most is not None and await self._jobs.lanes.count_awake(most + 1) > most

    async def _until_there_is_room(self) -> None:
        """Wait for room: two batches at most, or one small batch at a time while the queue fails."""
        if self._queue_backoff.delay_s:
            self._pace.slow_down()
            await self._lanes.has_room(1)
            await self._pause(self._queue_backoff.delay_s)
        await self._lanes.has_room(2 * self._pace.batch)


class ClaimPace:
    """The size of the next claim, and how many groups may be published at once.

    Both start at the configured numbers and grow together while claims come back full, until a claim has `most` jobs.
    Claims that are not full shrink them again; a failing queue resets them.
    """

    def __init__(self, batch: int, most: int, groups: int) -> None:
        self._first = batch
        self._most = max(batch, most)
        self._groups = groups
        self.batch = batch

    @property
    def groups(self) -> int:
        """Return how many groups may be published at once."""
        return max(1, self._groups * self.batch // self._first)

    def claimed(self, count: int) -> None:
        """Adjust the size to the number of jobs that the last claim returned."""
        # Shares are whole numbers of jobs, so a claim of many groups may return slightly less than it asked for.
        if count > self.batch // 2:
            self.batch = min(self.batch * _GROWTH, self._most)
        else:
            self.batch = max(self.batch // _GROWTH, self._first)

    def slow_down(self) -> None:
        """Start again with small claims."""
        self.batch = self._first


async def wait_for_work(jobs: JobRepository, clock: Clock, most_s: float, look_ms: int | None = None) -> None:
    """Wait until jobs may be published, the next one is due, a pool is looked at again, or `most_s` have passed."""
    due_ms = min((moment for moment in (await jobs.next_due_ms(), look_ms) if moment is not None), default=None)
    due_s = most_s if due_ms is None else max(0.0, (due_ms - clock.now_ms()) / 1000)
    with suppress(TimeoutError):
        async with asyncio.timeout(min(due_s, most_s)):
            await jobs.signal.wait()

"""Reads the lanes whose turn it is and hands them on: at once when called, when a job is due, and every few seconds.

How many jobs a claim asks for: few when there is little to do, more and more while there is a backlog.
"""

import logging
from collections.abc import Callable

from penstock.cluster import StaleLeader
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause
from penstock.events.dispatch.lane_publisher import GOOD_FOR, LanePublisher, OpenedPublisher, rest
from penstock.events.dispatch.settings import MOST_PER_LANE, Counts, SchedulerSettings
from penstock.events.store import JobRepository

_GROWTH = 4


class ClaimPace:
    """The size of the next claim, and how many groups may be published at once.

    Both start at the configured numbers and grow together, as long as claims come back full, until a claim has
    `most` jobs. Claims that are not full bring them down again, a queue in trouble at once.
    """

    def __init__(self, batch: int, most: int, groups: int) -> None:
        self._first = batch
        self._most = max(batch, most)
        self._groups = groups
        self.batch = batch

    @property
    def groups(self) -> int:
        """How many groups may be published at once."""
        return max(1, self._groups * self.batch // self._first)

    def claimed(self, count: int) -> None:
        """A claim brought so many."""
        # Shares are whole numbers of jobs, so a claim of many groups may bring a little less than it asked for.
        if count > self.batch // 2:
            self.batch = min(self.batch * _GROWTH, self._most)
        else:
            self.batch = max(self.batch // _GROWTH, self._first)

    def slow_down(self) -> None:
        """Begin again with little."""
        self.batch = self._first


log = logging.getLogger(__name__)


_FIRST_PAUSE_S = 0.5


class PendingJobPoller:
    """Polls until it is cancelled, or until another node leads; never twice at once."""

    def __init__(
        self,
        jobs: JobRepository,
        lanes: LanePublisher,
        queue: OpenedPublisher,
        pace: ClaimPace,
        queue_backoff: Backoff,
        counts: Counts,
        settings: SchedulerSettings,
        clock: Clock,
        seconds: Callable[[], float],
        pause: Pause,
    ) -> None:
        self._jobs = jobs
        self._lanes = lanes
        self._queue = queue
        self._pace = pace
        self._queue_backoff = queue_backoff
        self._own_backoff = Backoff(_FIRST_PAUSE_S, settings.poll_interval_s)
        self._counts = counts
        self._poll_interval_s = settings.poll_interval_s
        self._good_for_s = settings.claim_lease_s * GOOD_FOR
        self._clock = clock
        self._seconds = seconds
        self._pause = pause

    async def run(self) -> None:
        """Poll again and again; what goes wrong is logged, and does not end it. StaleLeader when another leads."""
        while True:
            try:
                await self.poll()
                await rest(self._jobs, self._clock, self._poll_interval_s)
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
        """Claim lanes and publish from them until none is left whose turn it is."""
        await self._queue.opened()
        while True:
            await self._until_there_is_room()
            good_until_s = self._seconds() + self._good_for_s
            now_ms = self._clock.now_ms()
            await self._jobs.do_chores(now_ms)
            runs = await self._jobs.lanes.read(now_ms, self._pace.batch, MOST_PER_LANE)
            self._pace.claimed(await self._lanes.take(runs, good_until_s))
            if not runs:
                return

    async def _until_there_is_room(self) -> None:
        """One batch may wait while another is being published; a queue in trouble gets one small batch at a time."""
        if self._queue_backoff.delay_s:
            self._pace.slow_down()
            await self._lanes.has_room(1)
            await self._pause(self._queue_backoff.delay_s)
        await self._lanes.has_room(2 * self._pace.batch)

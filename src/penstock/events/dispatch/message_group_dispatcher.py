"""Brings the queues of many groups to the publisher: a limited number of groups at once, in turn.

The claimed jobs of one group that wait to be published, in order.

How long a job that came back from the queue waits before it goes there again.

The process endpoint sends a job back whose turn it is not: an earlier one of its group is still on its way, or lost.
Nothing tells when that changes, so without a pause the job would go round as fast as the queue can carry it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.events.store.lanes import lane_key


class MessageGroupQueue:
    """First in, first out, with one run of jobs in flight at a time.

    Jobs come in the order of their claims, which is that of the group: by `sequence`, then `created_at`. A run is
    published in that order too, so to take several at once keeps it.
    """

    __slots__ = ("_good_until_s", "_in_flight", "_pending")

    def __init__(self) -> None:
        self._pending: list[ClaimedJob] = []
        self._good_until_s = 0.0
        self._in_flight = False

    def add(self, jobs: Sequence[ClaimedJob], good_until_s: float) -> None:
        """Put jobs behind the others; after `good_until_s` it is too late to publish them."""
        self._good_until_s = min(self._good_until_s, good_until_s) if self._pending else good_until_s
        self._pending += jobs

    def is_too_late(self, now_s: float) -> bool:
        """Whether the claim of a job that waits is nearly over: it is claimed anew, so those behind it must not go."""
        return now_s >= self._good_until_s

    def take_run(self) -> list[ClaimedJob]:
        """All that wait, now in flight; none while others are."""
        if self._in_flight:
            return []
        self._in_flight = True
        return self.clear()

    def clear(self) -> list[ClaimedJob]:
        """Forget all that wait; what it was."""
        waiting, self._pending = self._pending, []
        return waiting

    def run_ended(self) -> None:
        """What was in flight is no longer."""
        self._in_flight = False

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to take."""
        return bool(self._pending) and not self._in_flight


_FREE_ROUNDS = 2
_FIRST_S = 0.1
_MOST_S = 5.0


def return_pause_s(publish_round: int) -> float:
    """None for the first rounds, then twice as long with every round, up to five seconds."""
    doublings = publish_round - _FREE_ROUNDS - 1
    if doublings < 0:
        return 0.0
    return float(min(_FIRST_S * 2.0 ** min(doublings, 10), _MOST_S))


log = logging.getLogger(__name__)

_WAVES = 2
_SMALL_WAVE = 10

Dispatch = Callable[[Sequence[ClaimedJob]], Awaitable[bool]]


class MessageGroupDispatcher:
    """One queue per group that has claimed jobs; a group without any has none.

    Groups that can go at the same time share one dispatch, a wave: their jobs are published and marked together.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        most_groups: Callable[[], int],
        seconds: Callable[[], float],
        pause_s: Callable[[int], float] = return_pause_s,
    ) -> None:
        self._dispatch = dispatch
        self._most_groups = most_groups
        self._seconds = seconds
        self._pause_s = pause_s
        self._queues: dict[LaneKey, MessageGroupQueue] = {}
        self._ready: deque[LaneKey] = deque()
        self._groups_in_flight = 0
        self._waves: set[asyncio.Task[None]] = set()
        self._jobs_held = 0
        # Runs whose jobs came back from the queue before. They take no room: nobody waits for them.
        self._paused: dict[asyncio.TimerHandle, Sequence[ClaimedJob]] = {}
        self._fewer = asyncio.Event()

    @property
    def groups(self) -> int:
        """How many groups have jobs here."""
        return len(self._queues)

    @property
    def jobs_held(self) -> int:
        """How many jobs are here, waiting or in flight."""
        return self._jobs_held

    def submit(self, jobs: Sequence[ClaimedJob], good_until_s: float) -> None:
        """Publish claimed jobs, each group's in order, unless it gets too late for that."""
        for lane, run in _by_lane(jobs).items():
            pause_s = self._pause_s(max(job.publish_round for job in run)) if lane.ordered else 0.0
            if pause_s:
                # Not so long that it is too late then, where claims are short.
                self._pause(lane, run, good_until_s, min(pause_s, (good_until_s - self._seconds()) / 2))
            else:
                self._add(lane, run, good_until_s)
        self._start_waves()

    async def has_room(self, most_jobs: int) -> None:
        """Return as soon as fewer than so many jobs are here."""
        while self._jobs_held >= most_jobs:
            self._fewer.clear()
            await self._fewer.wait()

    def abandon(self) -> list[ClaimedJob]:
        """Publish nothing of what still waits; what it was."""
        waiting = [job for queue in self._queues.values() for job in queue.clear()]
        paused = [job for run in self._paused.values() for job in run]
        for timer in self._paused:
            timer.cancel()
        self._paused.clear()
        self._ready.clear()
        self._queues.clear()
        self._let_go(len(waiting))
        return waiting + paused

    async def finish(self, within_s: float) -> None:
        """Wait for what is in flight, for a while."""
        if self._waves:
            await asyncio.wait(self._waves, timeout=within_s)
        for wave in list(self._waves):
            wave.cancel()
        await asyncio.gather(*self._waves, return_exceptions=True)

    def _add(self, lane: LaneKey, run: Sequence[ClaimedJob], good_until_s: float) -> None:
        queue = self._queues.get(lane)
        if queue is None:
            # Any other one is ready already, or will be when its run in flight ends.
            queue = self._queues[lane] = MessageGroupQueue()
            self._ready.append(lane)
        queue.add(run, good_until_s)
        self._jobs_held += len(run)

    def _pause(self, lane: LaneKey, run: Sequence[ClaimedJob], good_until_s: float, pause_s: float) -> None:
        def go_on() -> None:
            del self._paused[timer]
            self._add(lane, run, good_until_s)
            self._start_waves()

        timer = asyncio.get_running_loop().call_later(pause_s, go_on)
        self._paused[timer] = run

    def _start_waves(self) -> None:
        now_s, most_groups = self._seconds(), self._most_groups()
        # Several waves: one is marked while another is being published.
        in_a_wave = max(_SMALL_WAVE, most_groups // _WAVES)
        while self._ready and (free := most_groups - self._groups_in_flight) > 0:
            lanes: list[LaneKey] = []
            jobs: list[ClaimedJob] = []
            while self._ready and len(lanes) < min(free, in_a_wave):
                lane = self._ready.popleft()
                if run := self._taken(lane, now_s):
                    lanes.append(lane)
                    jobs += run
            if lanes:
                self._groups_in_flight += len(lanes)
                wave = asyncio.create_task(self._wave(lanes, jobs), name="dispatch-wave")
                self._waves.add(wave)

    def _taken(self, lane: LaneKey, now_s: float) -> list[ClaimedJob]:
        queue = self._queues[lane]
        if not queue.is_too_late(now_s):
            return queue.take_run()
        del self._queues[lane]
        self._let_go(len(queue.clear()))
        return []

    async def _wave(self, lanes: list[LaneKey], jobs: list[ClaimedJob]) -> None:
        try:
            await self._dispatch(jobs)
        except Exception:
            # Their claims end by themselves; then they are published again.
            log.exception("a dispatch failed in a way nobody expected", extra={"jobs": len(jobs)})
        finally:
            self._landed(lanes, len(jobs))

    def _landed(self, lanes: list[LaneKey], jobs: int) -> None:
        self._waves.discard(asyncio.current_task())
        self._groups_in_flight -= len(lanes)
        for lane in lanes:
            queue = self._queues.get(lane)
            if queue is None:
                continue
            queue.run_ended()
            if queue.is_waiting:
                self._ready.append(lane)
            else:
                del self._queues[lane]
        self._let_go(jobs)
        self._start_waves()

    def _let_go(self, jobs: int) -> None:
        self._jobs_held -= jobs
        if jobs:
            self._fewer.set()


def _by_lane(jobs: Sequence[ClaimedJob]) -> dict[LaneKey, list[ClaimedJob]]:
    lanes: dict[LaneKey, list[ClaimedJob]] = {}
    for job in jobs:
        lanes.setdefault(lane_key(job), []).append(job)
    return lanes

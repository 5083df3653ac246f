"""Brings the jobs of claimed lanes to the queue: a limited number of lanes at once, in turn; used by both engines.

The lanes that one owner has claimed, until what it took of them is in the queue and marked; used by both engines.

Waiting for the next thing to do: a call, something that comes due, or the next tick.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol

from penstock.cluster import StaleLeader
from penstock.domain.errors import FailedPrecondition, InvalidArgument
from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock, stopwatch
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.errors import NotLeading
from penstock.events.store import JobRepository, LaneOwner, LaneRun, Lanes
from penstock.queues import Publisher


class LaneClaims:
    """Claims lanes, marks what is in the queue, and leaves nothing behind; StaleLeader once another node leads.

    A crash leaves claims that end by themselves. What was published is then published again, and the queue's
    deduplication absorbs it.
    """

    def __init__(self, lanes: Lanes, owner: LaneOwner, settings: SchedulerSettings, clock: Clock) -> None:
        self._lanes = lanes
        self._owner = owner
        self._clock = clock
        self._claim_ms = round(settings.claim_lease_s * 1000)
        self._pause_ms = round(settings.poll_interval_s * 1000)
        self._stale_after_ms = round(settings.stale_after_s * 1000)
        # In turn, so that what is given back keeps its place.
        self._held: dict[LaneKey, None] = {}
        self._unmarked: list[tuple[Sequence[ClaimedJob], Collection[LaneKey]]] = []

    async def take(self, runs: Sequence[LaneRun]) -> list[LaneRun]:
        """Claim lanes; the runs to publish now. Lanes with nothing to give go to sleep, others may have to rest."""
        now_ms = self._clock.now_ms()
        idle = [run.lane for run in runs if not run.jobs]
        if idle:
            await self._lanes.let_sleep(idle, self._owner, now_ms)
        turns = {run.lane: run.turn for run in runs if run.jobs}
        if not turns:
            return []
        claimed = set(await self._lanes.claim(turns, self._owner, now_ms, self._claim_ms))
        taken = [run for run in runs if run.lane in claimed and run.jobs]
        resting = [(run.lane, run.rests_until_ms) for run in taken if run.rests_until_ms > now_ms]
        if resting:
            await self._lanes.hold(resting, self._owner)
        going = [run for run in taken if run.rests_until_ms <= now_ms]
        self._held.update((run.lane, None) for run in going)
        return going

    async def published(self, jobs: Sequence[ClaimedJob], done: Collection[LaneKey]) -> None:
        """Mark jobs that are in the queue; the lanes that are done are free again."""
        try:
            await self._mark(jobs, done)
        except StaleLeader:
            raise
        except Exception:
            self._unmarked.append((jobs, done))
            raise

    async def failed(self, lanes: Collection[LaneKey]) -> None:
        """Keep lanes back for a poll interval: a job of each could not be published, and none may pass it."""
        until_ms = self._clock.now_ms() + self._pause_ms
        await self._lanes.hold([(lane, until_ms) for lane in lanes], self._owner)
        self._forget(lanes)

    async def settle(self) -> None:
        """Mark what could not be marked before, and give back the lanes that were not tried."""
        while self._unmarked:
            await self._mark(*self._unmarked[0])
            del self._unmarked[0]
        if self._held:
            await self._mark([], list(self._held))

    async def _mark(self, jobs: Sequence[ClaimedJob], done: Collection[LaneKey]) -> None:
        now_ms = self._clock.now_ms()
        await self._lanes.mark_published(jobs, list(done), self._owner, now_ms, now_ms + self._stale_after_ms)
        self._forget(done)

    def _forget(self, lanes: Collection[LaneKey]) -> None:
        for lane in lanes:
            self._held.pop(lane, None)


log = logging.getLogger(__name__)

GOOD_FOR = 0.5
"""A claim is used for so much of its time; then it is left to end, as another node may soon have its lanes."""

_WAVES = 2
_SMALL_WAVE = 10
# More failures in a row than a few groups in trouble explain.
_CROWD = 1000
# What the queue says of one message, or of one group; anything else is about the queue as a whole.
_OF_ONE_GROUP = (InvalidArgument, FailedPrecondition)


class OpenedPublisher(Protocol):
    """A publisher that is opened when it is wanted."""

    async def opened(self) -> Publisher:
        """The publisher, open."""
        ...


class LanePublisher:
    """Publishes each lane's jobs in order, and marks them QUEUED; of a lane, none goes past one that failed.

    Lanes that can go at the same time share one call to the queue, a wave: their jobs are published and marked
    together. A job that the queue knew already is in the queue, too.
    """

    def __init__(
        self,
        claims: LaneClaims,
        publisher: OpenedPublisher,
        pointers: Pointers,
        backoff: Backoff,
        counts: Counts,
        clock: Clock,
        *,
        most_lanes: Callable[[], int],
        may_publish: Callable[[], bool],
        landed: Callable[[], None] = lambda: None,
        seconds: Callable[[], float] = stopwatch,
    ) -> None:
        self._claims = claims
        self._publisher = publisher
        self._pointers = pointers
        self._backoff = backoff
        self._counts = counts
        self._clock = clock
        self._most_lanes = most_lanes
        self._may_publish = may_publish
        self._landed = landed
        self._seconds = seconds
        self._waiting: deque[tuple[LaneRun, float]] = deque()
        self._in_hand: set[LaneKey] = set()
        self._lanes_in_flight = 0
        self._waves: set[asyncio.Task[None]] = set()
        self._failures_in_a_row = 0
        self._fewer = asyncio.Event()
        self.jobs_held = 0
        """How many jobs are here, waiting or in flight."""

    @property
    def lanes_held(self) -> int:
        """How many lanes they are of."""
        return len(self._in_hand)

    async def take(self, runs: Sequence[LaneRun], good_until_s: float) -> int:
        """Claim lanes and publish from them, unless it gets too late for that; how many jobs they gave."""
        # One whose claim has ended while it is still being published from stays as it is: it is in order.
        taken = [run for run in await self._claims.take(runs) if run.lane not in self._in_hand]
        jobs = [job for run in taken for job in run.jobs]
        now_ms = self._clock.now_ms()
        self._counts.claimed += len(jobs)
        self._counts.lag_s = max((now_ms - job.due_at_ms for job in jobs), default=0) / 1000
        self._waiting += [(run, good_until_s) for run in taken]
        self._in_hand.update(run.lane for run in taken)
        self.jobs_held += len(jobs)
        self._start_waves()
        return len(jobs)

    async def has_room(self, most_jobs: int) -> None:
        """Return as soon as fewer jobs than `most_jobs` are here."""
        while self.jobs_held >= most_jobs:
            self._fewer.clear()
            await self._fewer.wait()

    async def finish(self, within_s: float) -> None:
        """Publish nothing of what still waits; let what is in flight end, and give the rest back."""
        while self._waiting:
            self._let_go([self._waiting.popleft()[0]])
        if self._waves:
            await asyncio.wait(self._waves, timeout=within_s)
        for wave in list(self._waves):
            wave.cancel()
        await asyncio.gather(*self._waves, return_exceptions=True)
        await self._claims.settle()

    def _start_waves(self) -> None:
        most_lanes = self._most_lanes()
        # Several waves: one is marked while another is being published.
        in_a_wave = max(_SMALL_WAVE, most_lanes // _WAVES)
        while self._waiting and (free := most_lanes - self._lanes_in_flight) > 0:
            if runs := self._next_wave(min(free, in_a_wave)):
                self._lanes_in_flight += len(runs)
                wave = asyncio.create_task(self._wave(runs), name="dispatch-wave")
                self._waves.add(wave)
                wave.add_done_callback(self._waves.discard)

    def _next_wave(self, most: int) -> list[LaneRun]:
        now_s = self._seconds()
        runs: list[LaneRun] = []
        while self._waiting and len(runs) < most:
            run, good_until_s = self._waiting.popleft()
            if now_s < good_until_s:
                runs.append(run)
            else:
                self._let_go([run])
        return runs

    async def _wave(self, runs: list[LaneRun]) -> None:
        try:
            await self._publish(runs)
        except Exception:
            # Their claims end by themselves; then they are published again.
            log.exception("a dispatch failed unexpectedly", extra={"lanes": len(runs)})
        finally:
            self._lanes_in_flight -= len(runs)
            self._let_go(runs)
            self._start_waves()

    def _let_go(self, runs: Sequence[LaneRun]) -> None:
        self._in_hand.difference_update(run.lane for run in runs)
        self.jobs_held -= sum(len(run.jobs) for run in runs)
        self._fewer.set()

    async def _publish(self, runs: Sequence[LaneRun]) -> None:
        jobs = [job for run in runs for job in run.jobs]
        outcomes = list(zip(jobs, await self._sent(jobs), strict=True))
        published = [job for job, failure in outcomes if failure is None]
        failures = [(job, failure) for job, failure in outcomes if failure is not None]
        self._note(published, failures)
        await self._mark(runs, published, {job.lane for job, _ in failures})

    async def _sent(self, jobs: Sequence[ClaimedJob]) -> "Sequence[Exception | None]":
        try:
            publisher = await self._publisher.opened()
            now_ms = self._clock.now_ms()
            publications = [self._pointers.publication(job, now_ms) for job in jobs]
            # The last thing before: what came before may have taken long.
            if not self._may_publish():
                raise NotLeading
            return await publisher.publish(publications)
        except Exception as error:
            return [error] * len(jobs)

    def _note(self, published: Sequence[ClaimedJob], failures: "Sequence[tuple[ClaimedJob, Exception]]") -> None:
        """A queue in trouble is asked more slowly; some groups in trouble do not slow the others down."""
        self._counts.published += len(published)
        if failures:
            self._tell_of(failures)
        else:
            self._counts.trouble = None
        if published:
            self._failures_in_a_row = 0
            self._backoff.succeeded()
            return
        self._failures_in_a_row += len(failures)
        is_crowded = self._failures_in_a_row > _CROWD
        if is_crowded or not any(isinstance(failure, _OF_ONE_GROUP) for _, failure in failures):
            self._backoff.failed()

    async def _mark(self, runs: Sequence[LaneRun], published: Sequence[ClaimedJob], failed: set[LaneKey]) -> None:
        try:
            if published:
                await self._claims.published(published, {run.lane for run in runs} - failed)
                self._landed()
            if failed:
                await self._claims.failed(failed)
        except Exception as error:
            log.warning(
                "published jobs could not be marked; they will be published again, and deduplicated",
                extra={"jobs": len(published), "error": str(error)},
            )

    def _tell_of(self, failures: "Sequence[tuple[ClaimedJob, Exception]]") -> None:
        first, reason = failures[0]
        self._counts.publish_failures += len(failures)
        self._counts.trouble = f"{len(failures)} jobs could not be published: {reason}"
        log.warning(
            "jobs could not be published; they stay pending",
            extra={"jobs": len(failures), "first_job": first.id, "error": str(reason) or repr(reason)},
        )


async def rest(jobs: JobRepository, clock: Clock, most_s: float) -> None:
    """Return when jobs may be published, when the next one comes due, or after `most_s`."""
    due_ms = await jobs.next_due_ms()
    due_s = most_s if due_ms is None else max(0.0, (due_ms - clock.now_ms()) / 1000)
    with suppress(TimeoutError):
        async with asyncio.timeout(min(due_s, most_s)):
            await jobs.signal.wait()

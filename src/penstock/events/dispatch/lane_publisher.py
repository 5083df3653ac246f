"""Publishes the jobs of claimed lanes: a limited number of lanes at once, in turn. Both engines use it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.domain.errors import FailedPrecondition, InvalidArgument
from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock, stopwatch
from penstock.events.dispatch.lane_claims import LaneClaims
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.settings import Counts
from penstock.events.errors import NotLeading
from penstock.events.store import LaneRun
from penstock.queues import Publisher

log = logging.getLogger(__name__)

USABLE_SHARE = 0.5
"""The share of a claim's lease in which it is used; after that, another node may soon take its lanes."""

_WAVES = 2
_SMALL_WAVE = 10
# More consecutive failures than a few failing groups can explain.
_CROWD = 1000
# Errors about one message or one group; any other error concerns the whole queue.
_OF_ONE_GROUP = (InvalidArgument, FailedPrecondition)


class OpenedPublisher(Protocol):
    """A publisher that is opened on demand."""

    async def opened(self) -> Publisher:
        """Return the publisher, open."""
        ...


class LanePublisher:
    """Publishes the jobs of each lane in order and marks them QUEUED; no job passes one of its lane that failed.

    Lanes that are ready at the same time share one call to the queue, a wave: their jobs are published and marked
    together. A job that the queue already knows counts as published.
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
        """Jobs that wait here or are in flight."""

    @property
    def lanes_held(self) -> int:
        """Return the number of lanes with jobs that wait here or are in flight."""
        return len(self._in_hand)

    async def take(self, runs: Sequence[LaneRun], good_until_s: float) -> int:
        """Claim lanes and publish from them until `good_until_s`; return how many jobs they had."""
        # A lane whose claim expired while it is still being published keeps its run, which is in order.
        taken = [run for run in await self._claims.take(runs) if run.lane not in self._in_hand]
        jobs = [job for run in taken for job in run.jobs]
        now_ms = self._clock.now_ms()
        self._counts.claimed += len(jobs)
        self._counts.lag_s = max((now_ms - job.due_at_ms for job in jobs), default=0) / 1000
        self._waiting += [(run, good_until_s) for run in taken]
        self._in_hand.update(run.lane for run in taken)
        self.jobs_held += len(jobs)
        for run in taken:
            if run.stream is not None:
                self._counts.in_hand[run.stream] += len(run.jobs)
        self._start_waves()
        return len(jobs)

    async def has_room(self, most_jobs: int) -> None:
        """Wait until fewer than `most_jobs` jobs are here."""
        while self.jobs_held >= most_jobs:
            self._fewer.clear()
            await self._fewer.wait()

    async def finish(self, within_s: float) -> None:
        """Drop what still waits, let what is in flight finish, and release the remaining lanes."""
        while self._waiting:
            self._release([self._waiting.popleft()[0]])
        if self._waves:
            await asyncio.wait(self._waves, timeout=within_s)
        for wave in list(self._waves):
            wave.cancel()
        await asyncio.gather(*self._waves, return_exceptions=True)
        await self._claims.settle()

    def _start_waves(self) -> None:
        most_lanes = self._most_lanes()
        # Several waves, so that one is marked while another is published.
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
                self._release([run])
        return runs

    async def _wave(self, runs: list[LaneRun]) -> None:
        try:
            await self._publish(runs)
        except Exception:
            # The claims expire, and the jobs are published again.
            log.exception("a wave failed unexpectedly", extra={"lanes": len(runs)})
        finally:
            self._lanes_in_flight -= len(runs)
            self._release(runs)
            self._start_waves()

    def _release(self, runs: Sequence[LaneRun]) -> None:
        self._in_hand.difference_update(run.lane for run in runs)
        self.jobs_held -= sum(len(run.jobs) for run in runs)
        for run in runs:
            if run.stream is not None:
                self._counts.in_hand[run.stream] -= len(run.jobs)
                if not self._counts.in_hand[run.stream]:
                    del self._counts.in_hand[run.stream]
        self._fewer.set()

    async def _publish(self, runs: Sequence[LaneRun]) -> None:
        jobs = [job for run in runs for job in run.jobs]
        outcomes = list(zip(jobs, await self._send(jobs), strict=True))
        published = [job for job, failure in outcomes if failure is None]
        failures = [(job, failure) for job, failure in outcomes if failure is not None]
        self._note(published, failures)
        await self._mark(runs, published, {job.lane for job, _ in failures})

    async def _send(self, jobs: Sequence[ClaimedJob]) -> "Sequence[Exception | None]":
        try:
            publisher = await self._publisher.opened()
            now_ms = self._clock.now_ms()
            publications = [self._pointers.publication(job, now_ms) for job in jobs]
            # Checked last, because opening the queue may have taken long.
            if not self._may_publish():
                raise NotLeading
            return await publisher.publish(publications)
        except Exception as error:
            return [error] * len(jobs)

    def _note(self, published: Sequence[ClaimedJob], failures: "Sequence[tuple[ClaimedJob, Exception]]") -> None:
        """Count the results; slow down for a failing queue, but not for a few failing groups."""
        self._counts.published += len(published)
        if failures:
            self._report(failures)
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

    def _report(self, failures: "Sequence[tuple[ClaimedJob, Exception]]") -> None:
        first, reason = failures[0]
        self._counts.publish_failures += len(failures)
        self._counts.trouble = f"{len(failures)} jobs could not be published: {reason}"
        log.warning(
            "jobs could not be published; they stay pending",
            extra={"jobs": len(failures), "first_job": first.id, "error": str(reason) or repr(reason)},
        )

"""Claims PENDING jobs and hands them on: at once when it is called, when one comes due, and every few seconds.

How many jobs a claim asks for: few when there is little to do, more and more while there is a backlog.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from penstock.events.dispatch.claims import Claims
from penstock.events.dispatch.message_group_dispatcher import MessageGroupDispatcher
from penstock.events.dispatch.publisher import Backoff, PatientPublisher, Pause
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.errors import StaleLeader

_GROWTH = 4


class Pace:
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
# A claim that has waited here for so much of its time is left to end: another node may soon have its jobs.
_GOOD_FOR = 0.5


class PendingJobPoller:
    """Polls until it is cancelled, or until another node leads; never twice at once."""

    def __init__(
        self,
        claims: Claims,
        dispatcher: MessageGroupDispatcher,
        publisher: PatientPublisher,
        pace: Pace,
        queue_backoff: Backoff,
        counts: Counts,
        settings: SchedulerSettings,
        seconds: Callable[[], float],
        pause: Pause,
    ) -> None:
        self._claims = claims
        self._dispatcher = dispatcher
        self._publisher = publisher
        self._pace = pace
        self._queue_backoff = queue_backoff
        self._own_backoff = Backoff(_FIRST_PAUSE_S, settings.poll_interval_s)
        self._counts = counts
        self._poll_interval_s = settings.poll_interval_s
        self._good_for_s = settings.claim_lease_s * _GOOD_FOR
        self._seconds = seconds
        self._pause = pause

    async def run(self) -> None:
        """Poll again and again; what goes wrong is logged, and does not end it. StaleLeader when another leads."""
        while True:
            try:
                await self.poll()
                await self._rest()
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
        """Claim and hand on until there is nothing more to claim."""
        await self._publisher.opened()
        while True:
            await self._until_there_is_room()
            asked_s = self._seconds()
            jobs = await self._claims.take(self._pace.batch)
            self._pace.claimed(len(jobs))
            self._counts.claimed += len(jobs)
            self._counts.lag_s = self._claims.waited_s(jobs)
            if not jobs:
                return
            self._dispatcher.submit(jobs, asked_s + self._good_for_s)

    async def _until_there_is_room(self) -> None:
        """One batch may wait while another is being published; a queue in trouble gets one small batch at a time."""
        if self._queue_backoff.delay_s:
            self._pace.slow_down()
            await self._dispatcher.has_room(1)
            await self._pause(self._queue_backoff.delay_s)
        await self._dispatcher.has_room(2 * self._pace.batch)

    async def _rest(self) -> None:
        """Wait for a call, for the next job to come due, or for the next tick."""
        next_s = await self._claims.until_next_s()
        wait_s = self._poll_interval_s if next_s is None else min(next_s, self._poll_interval_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._claims.called()

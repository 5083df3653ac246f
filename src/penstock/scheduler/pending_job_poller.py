"""Claims PENDING jobs and hands them on: at once when it is called, when one comes due, and every few seconds."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from penstock.jobs.errors import StaleLeader
from penstock.scheduler.backoff import Backoff
from penstock.scheduler.claims import Claims
from penstock.scheduler.counts import Counts
from penstock.scheduler.message_group_dispatcher import MessageGroupDispatcher
from penstock.scheduler.pace import Pace
from penstock.scheduler.patient_publisher import PatientPublisher, Pause
from penstock.scheduler.settings import SchedulerSettings

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

"""The scheduler: while this node leads, jobs go from PENDING to the queue."""

import asyncio
import logging
from collections.abc import Callable

from penstock.core.clock import Clock
from penstock.edge.pause import pause, stopwatch
from penstock.jobs.errors import StaleLeader
from penstock.scheduler.claims import Claims
from penstock.scheduler.counts import Counts
from penstock.scheduler.patient_publisher import PatientPublisher, Pause
from penstock.scheduler.pointers import Pointers
from penstock.scheduler.retention import Retention
from penstock.scheduler.scheduled_jobs import ScheduledJobs
from penstock.scheduler.settings import SchedulerSettings
from penstock.scheduler.standby import Leadership
from penstock.scheduler.term import Term
from penstock.sources.port import Publisher

log = logging.getLogger(__name__)

# After a term that ended in a way nobody expected.
_PAUSE_S = 1.0


class Scheduler:
    """Runs a term whenever this node leads. `name` tells nodes apart in the claims."""

    def __init__(
        self,
        jobs: ScheduledJobs,
        publisher: Publisher,
        pointers: Pointers,
        leadership: Leadership,
        settings: SchedulerSettings,
        clock: Clock,
        *,
        name: str,
        seconds: Callable[[], float] = stopwatch,
        pause: Pause = pause,
    ) -> None:
        self.counts = Counts()
        self._jobs = jobs
        self._publisher = PatientPublisher(publisher, self.counts, pause)
        self._pointers = pointers
        self._leadership = leadership
        self._settings = settings
        self._clock = clock
        self._name = name
        self._seconds = seconds
        self._pause = pause
        self._term: Term | None = None

    @property
    def jobs_held(self) -> int:
        """Jobs that are claimed here and not published yet."""
        return 0 if self._term is None else self._term.dispatcher.jobs_held

    @property
    def groups_held(self) -> int:
        """Groups that those jobs are of."""
        return 0 if self._term is None else self._term.dispatcher.groups

    async def run(self) -> None:
        """Lead whenever it is this node's turn, until cancelled; nothing that goes wrong ends it."""
        try:
            while True:
                await self._leadership.becomes(True)
                await self._lead()
        finally:
            await self._publisher.close()

    async def _lead(self) -> None:
        """One term: ends when the lease is lost or another leads."""
        self.counts.terms += 1
        self._term = term = self._new_term()
        work = asyncio.create_task(term.run(), name="scheduler-term")
        lost = asyncio.create_task(self._leadership.becomes(False), name="leadership-lost")
        try:
            await asyncio.wait((work, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            lost.cancel()
            await asyncio.gather(work, lost, return_exceptions=True)
            await term.close()
            self._term = None
        if not work.cancelled():
            await self._explain(work.exception())

    async def _explain(self, error: BaseException | None) -> None:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(StaleLeader):
            log.warning("another node leads: this one stands down", extra={"token": self._leadership.token})
            self._leadership.stand_down()
            return
        self.counts.errors += 1
        log.error("the scheduler stopped in a way nobody expected; it starts again", exc_info=error)
        await self._pause(_PAUSE_S)

    def _new_term(self) -> Term:
        owner = f"{self._name}#{self.counts.terms}"
        claims = Claims(self._jobs, self._clock, self._settings, owner=owner, token=self._leadership.token)
        return Term(
            claims,
            Retention(self._jobs, self._settings, self.counts, self._clock, self._pause),
            self._publisher,
            self._pointers,
            self._settings,
            self.counts,
            self._clock,
            may_publish=self._leadership.is_primary,
            seconds=self._seconds,
            pause=self._pause,
        )

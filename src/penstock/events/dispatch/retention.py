"""Finished jobs leave the table that is polled, and in the end the database: archived, then dropped by the month."""

import logging
from typing import Protocol

from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause
from penstock.events.dispatch.settings import Counts, SchedulerSettings

EVERY_S = 60.0
# So few at a time that no transaction holds up the claims beside it.
BATCH = 1_000

log = logging.getLogger(__name__)


class KeptJobs(Protocol):
    """What retention asks of the job repository."""

    async def archive_finished(self, before_ms: int, now_ms: int, most: int) -> int:
        """Move jobs finished before to the archive."""
        ...

    async def purge_archive(self, before_ms: int) -> None:
        """Drop what is archived of months that ended before."""

    async def forget_events(self, before_ms: int, most: int) -> int:
        """Delete events received before that no job outside the archive needs."""
        ...


class Retention:
    """Tidies up every minute, as far as there is something to do."""

    def __init__(self, jobs: KeptJobs, settings: SchedulerSettings, counts: Counts, clock: Clock, pause: Pause) -> None:
        self._jobs = jobs
        self._settings = settings
        self._counts = counts
        self._clock = clock
        self._pause = pause

    async def run(self) -> None:
        """Tidy up until cancelled; what goes wrong is logged, and does not end it."""
        while True:
            await self._pause(EVERY_S)
            try:
                await self.tidy()
            except Exception:
                self._counts.errors += 1
                log.exception("finished jobs could not be archived")

    async def tidy(self) -> None:
        """Archive what is finished, and forget what was kept for long enough."""
        now_ms = self._clock.now_ms()
        archive_before_ms = now_ms - round(self._settings.archive_after_s * SECOND_MS)
        forget_before_ms = now_ms - round(self._settings.keep_archive_s * SECOND_MS)
        while (archived := await self._jobs.archive_finished(archive_before_ms, now_ms, BATCH)) > 0:
            self._counts.archived += archived
            await self._pause(0)
        await self._jobs.purge_archive(forget_before_ms)
        while await self._jobs.forget_events(forget_before_ms, BATCH) > 0:
            await self._pause(0)

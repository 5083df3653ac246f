"""Archives finished jobs, and drops old archives by the month."""

import logging
from typing import Protocol

from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause
from penstock.events.dispatch.settings import Counts, SchedulerSettings

EVERY_S = 60.0
# Small enough that no transaction delays the claims beside it.
BATCH = 1_000
log = logging.getLogger(__name__)


class RetainedJobs(Protocol):
    """What retention needs from the job repository."""

    async def archive_finished(self, before_ms: int, now_ms: int, most: int) -> int:
        """Move jobs that finished before a time to the archive; return how many."""
        ...

    async def purge_archive(self, before_ms: int) -> None:
        """Drop the archived jobs of months that ended before a time."""

    async def forget_events(self, before_ms: int, most: int) -> int:
        """Delete events received before a time that no live job needs; return how many."""
        ...


class Retention:
    """Archives and purges every minute."""

    def __init__(
        self,
        jobs: RetainedJobs,
        settings: SchedulerSettings,
        counts: Counts,
        clock: Clock,
        pause: Pause,
    ) -> None:
        self._jobs = jobs
        self._settings = settings
        self._counts = counts
        self._clock = clock
        self._pause = pause

    async def run(self) -> None:
        """Archive and purge until cancelled; log errors and go on."""
        while True:
            await self._pause(EVERY_S)
            try:
                await self.tidy()
            except Exception:
                self._counts.errors += 1
                log.exception("finished jobs could not be archived")

    async def tidy(self) -> None:
        """Archive finished jobs, and delete those whose retention has ended."""
        now_ms = self._clock.now_ms()
        archive_before_ms = now_ms - round(self._settings.archive_after_s * SECOND_MS)
        forget_before_ms = now_ms - round(self._settings.keep_archive_s * SECOND_MS)
        while (archived := await self._jobs.archive_finished(archive_before_ms, now_ms, BATCH)) > 0:
            self._counts.archived += archived
            await self._pause(0)
        await self._jobs.purge_archive(forget_before_ms)
        while await self._jobs.forget_events(forget_before_ms, BATCH) > 0:
            await self._pause(0)

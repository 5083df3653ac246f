"""Recovers jobs that were lost while they were queued or being delivered.

A queued job has a lease of 15 minutes, which the router extends while it holds the job. Only a job whose lease has
expired goes back to PENDING (SCHED-STALE-2); the process endpoint delivers it once, whichever of its pointers arrives
first.
"""

import logging

from penstock.cluster import StaleLeader
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.store import JobRepository

log = logging.getLogger(__name__)


class StaleQueuedJobPoller:
    """Recovers stale jobs at a fixed interval, up to a number of them each time."""

    def __init__(
        self,
        jobs: JobRepository,
        clock: Clock,
        settings: SchedulerSettings,
        counts: Counts,
        pause: Pause,
        *,
        token: int | None,
    ) -> None:
        self._jobs = jobs
        self._clock = clock
        self._every_s = settings.stale_poll_s
        self._most = settings.stale_batch_size
        self._counts = counts
        self._pause = pause
        self._token = token

    async def run(self) -> None:
        """Poll until cancelled; log errors and go on. StaleLeader is raised when another node leads."""
        while True:
            try:
                await self.poll()
            except StaleLeader:
                raise
            except Exception:
                self._counts.errors += 1
                log.exception("the search for stale jobs failed")
            await self._pause(self._every_s)

    async def poll(self) -> None:
        """Return stale jobs to PENDING, which wakes the poller of pending jobs."""
        recovered = await self._jobs.recover_stale(self._clock.now_ms(), self._most, self._token)
        self._counts.recovered += len(recovered)
        if recovered:
            log.warning("stale jobs are pending again", extra={"jobs": len(recovered), "first_job": recovered[0]})

"""The safety net: jobs that were queued or being delivered, and that nobody has heard of for too long.

A job in the queue has a lease of 15 minutes, which whoever knows of it prolongs. Only one whose lease is over goes back
to PENDING (SCHED-STALE-2); the process endpoint delivers it once, whichever of its pointers comes first.

What a leader does beside publishing, for an engine that publishes elsewhere: chores, lost jobs, retention.
"""

import asyncio
import logging

from penstock.cluster import StaleLeader
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause
from penstock.events.dispatch.lane_publisher import rest
from penstock.events.dispatch.retention import Retention
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.store import JobRepository

log = logging.getLogger(__name__)


class StaleQueuedJobPoller:
    """Looks for them every so often, and takes up to a number of them."""

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
        """Poll until cancelled; what goes wrong is logged, and does not end it. StaleLeader when another leads."""
        while True:
            try:
                await self.poll()
            except StaleLeader:
                raise
            except Exception:
                self._counts.errors += 1
                log.exception("stale jobs could not be looked for")
            await self._pause(self._every_s)

    async def poll(self) -> None:
        """Bring stale jobs back to PENDING; the other poller is called."""
        recovered = await self._jobs.recover_stale(self._clock.now_ms(), self._most, self._token)
        self._counts.recovered += len(recovered)
        if recovered:
            log.warning("stale jobs are pending again", extra={"jobs": len(recovered), "first_job": recovered[0]})


class ChorePoller:
    """Sees to jobs that come due or expire and to claims that run out: when the next one does, and every so often."""

    def __init__(self, jobs: JobRepository, clock: Clock, counts: Counts, every_s: float, pause: Pause) -> None:
        self._jobs = jobs
        self._clock = clock
        self._counts = counts
        self._every_s = every_s
        self._pause = pause

    async def run(self) -> None:
        """Poll until cancelled; what goes wrong is logged, and does not end it."""
        while True:
            try:
                await self._jobs.do_chores(self._clock.now_ms())
                await rest(self._jobs, self._clock, self._every_s)
            except Exception:
                self._counts.errors += 1
                log.exception("jobs that came due could not be seen to")
                await self._pause(self._every_s)


class Housekeeping:
    """One term of a leader whose jobs are published elsewhere."""

    def __init__(self, chores: ChorePoller, stale: StaleQueuedJobPoller, retention: Retention) -> None:
        self._chores = chores
        self._stale = stale
        self._retention = retention

    async def run(self) -> None:
        """Do everything until cancelled; StaleLeader when another leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._chores.run(), name="chore-poller")
            group.create_task(self._stale.run(), name="stale-queued-job-poller")
            group.create_task(self._retention.run(), name="retention")

    async def close(self) -> None:
        """Nothing is under way."""

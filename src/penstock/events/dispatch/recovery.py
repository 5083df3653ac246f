"""The safety net: jobs that were queued or being delivered, and that nobody has heard of for too long.

A job in the queue has a lease of 15 minutes, which whoever knows of it prolongs. Only one whose lease is over goes back
to PENDING (SCHED-STALE-2); the process endpoint delivers it once, whichever of its pointers comes first.

What a leader does beside publishing, for an engine that publishes elsewhere: chores, lost jobs, retention.
"""

import asyncio
import logging
from contextlib import suppress

from penstock.events.dispatch.claims import Claims
from penstock.events.dispatch.publisher import Pause
from penstock.events.dispatch.retention import Retention
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.errors import StaleLeader

log = logging.getLogger(__name__)


class StaleQueuedJobPoller:
    """Looks for them every so often, and takes so many at most."""

    def __init__(self, claims: Claims, counts: Counts, every_s: float, most: int, pause: Pause) -> None:
        self._claims = claims
        self._counts = counts
        self._every_s = every_s
        self._most = most
        self._pause = pause

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
        recovered = await self._claims.recover(self._most)
        self._counts.recovered += len(recovered)
        if recovered:
            log.warning("stale jobs are pending again", extra={"jobs": len(recovered), "first_job": recovered[0]})


class ChorePoller:
    """Sees to jobs that come due or expire and to claims that run out: when the next one does, and every so often."""

    def __init__(self, claims: Claims, counts: Counts, every_s: float, pause: Pause) -> None:
        self._claims = claims
        self._counts = counts
        self._every_s = every_s
        self._pause = pause

    async def run(self) -> None:
        """Poll until cancelled; what goes wrong is logged, and does not end it."""
        while True:
            try:
                await self._claims.do_chores()
                await self._rest()
            except Exception:
                self._counts.errors += 1
                log.exception("jobs that came due could not be seen to")
                await self._pause(self._every_s)

    async def _rest(self) -> None:
        next_s = await self._claims.until_next_s()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every_s if next_s is None else min(next_s, self._every_s)):
                await self._claims.called()


class Housekeeping:
    """One term of a leader whose jobs are published elsewhere."""

    def __init__(
        self,
        claims: Claims,
        retention: Retention,
        settings: SchedulerSettings,
        counts: Counts,
        pause: Pause,
        *,
        chores_every_s: float,
    ) -> None:
        self._chores = ChorePoller(claims, counts, chores_every_s, pause)
        self._stale = StaleQueuedJobPoller(claims, counts, settings.stale_poll_s, settings.stale_batch_size, pause)
        self._retention = retention

    async def run(self) -> None:
        """Do everything until cancelled; StaleLeader when another leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._chores.run(), name="chore-poller")
            group.create_task(self._stale.run(), name="stale-queued-job-poller")
            group.create_task(self._retention.run(), name="retention")

    async def close(self) -> None:
        """Nothing is under way."""

"""The safety net: jobs that were queued or being delivered, and that nobody has heard of for too long.

A job in the queue has a lease of 15 minutes, which whoever knows of it prolongs. Only one whose lease is over goes back
to PENDING (ruling 20); the process endpoint delivers it once, whichever of its pointers comes first.
"""

import logging

from penstock.jobs.errors import StaleLeader
from penstock.scheduler.claims import Claims
from penstock.scheduler.counts import Counts
from penstock.scheduler.patient_publisher import Pause

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

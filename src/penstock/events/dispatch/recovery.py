"""Recovers jobs that were lost while they were queued or being delivered.

Age alone never publishes a job again (SCHED-STALE-3): behind a slow pool a pointer may wait for hours. Every job that
has been QUEUED for 15 minutes is a suspect, and its queue is asked. It is lost if its pointer cannot be there any more:
it was published before the oldest message that is not settled, or its token has expired. The process endpoint delivers
a recovered job once, whichever of its pointers arrives first.
"""

import logging
from collections.abc import Sequence

from penstock.cluster import StaleLeader
from penstock.domain.errors import PenstockError
from penstock.domain.limits import MINUTE_MS, SECOND_MS
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause
from penstock.events.dispatch.lane_publisher import OpenedPublisher
from penstock.events.dispatch.pointers import queue_of
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.process import TOKEN_LIFETIME_S
from penstock.events.store import JobRepository

log = logging.getLogger(__name__)

CLOCK_SKEW_MS = MINUTE_MS
"""How far the clocks of the queue and of the schedulers may be apart."""


class StaleQueuedJobPoller:
    """Recovers lost jobs at a fixed interval, up to a number of them each time."""

    def __init__(
        self,
        jobs: JobRepository,
        queue: OpenedPublisher,
        clock: Clock,
        settings: SchedulerSettings,
        counts: Counts,
        pause: Pause,
        *,
        token: int | None,
    ) -> None:
        self._jobs = jobs
        self._queue = queue
        self._clock = clock
        self._every_s = settings.stale_poll_s
        self._most = settings.stale_batch_size
        self._counts = counts
        self._pause = pause
        self._token = token
        self._last_pool = ""

    async def run(self) -> None:
        """Poll until cancelled; log errors and go on. StaleLeader is raised when another node leads."""
        while True:
            try:
                await self.poll()
            except StaleLeader:
                raise
            except Exception:
                self._counts.errors += 1
                log.exception("the search for lost jobs failed")
            await self._pause(self._every_s)

    async def poll(self) -> None:
        """Return lost jobs to PENDING, which wakes the poller of pending jobs."""
        now_ms = self._clock.now_ms()
        settled = await self._settled(await self._suspect_pools(now_ms), now_ms)
        recovered = await self._jobs.recover_stale(now_ms, self._most, self._token, settled)
        self._counts.recovered += len(recovered)
        if recovered:
            log.warning("lost jobs are pending again", extra={"jobs": len(recovered), "first_job": recovered[0]})

    async def _suspect_pools(self, now_ms: int) -> Sequence[str]:
        """Return pools to ask for, some at a time; the next poll goes on after the last of them."""
        pools = await self._jobs.stale_pools(now_ms, self._last_pool, self._most)
        self._last_pool = pools[-1] if len(pools) == self._most else ""
        return pools

    async def _settled(self, pools: Sequence[str], now_ms: int) -> dict[str, int]:
        """Return for each pool the moment before which nothing was published that can still be delivered."""
        expired_ms = now_ms - TOKEN_LIFETIME_S * SECOND_MS
        return {pool: max(expired_ms, await self._settled_before_ms(pool) - CLOCK_SKEW_MS) for pool in pools}

    async def _settled_before_ms(self, pool: str) -> int:
        try:
            return await (await self._queue.opened()).settled_before_ms(queue_of(pool))
        except PenstockError as error:
            log.warning("the queue of old jobs cannot be asked", extra={"pool": pool, "error": str(error)})
            return 0

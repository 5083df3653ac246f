"""The queues of pools: used once routers know them, and removed when their pool is gone and they are empty."""

import logging
from collections.abc import Callable

from penstock.domain.errors import PenstockError
from penstock.edge.clock import stopwatch
from penstock.edge.pause import Pause
from penstock.events.store import JobRepository
from penstock.queues import PoolPublisher, Publisher, publisher_for

log = logging.getLogger(__name__)

_EVERY_S = 60.0
_GOOD_FOR_S = 2.0
_MISSING_FOR_S = 0.1


class PoolQueues:
    """Publishes to a queue for each pool that routers know of; `removed` is called when there is one less.

    Jobs of other pools go to the shared queue, where any router finds them.
    """

    def __init__(self, jobs: JobRepository, uri: str, removed: Callable[[], None] = lambda: None) -> None:
        self._jobs = jobs
        self._removed = removed
        self._known: frozenset[str] = frozenset()
        self._good_until_s = 0.0
        self._missing_until_s = 0.0
        self.publisher = PoolPublisher(uri, self._has_queue)

    async def remove_unused(self) -> None:
        """Remove the queues that no pool has any more, if they are empty."""
        named = await self._jobs.pool_limits()
        for code in await self._jobs.pool_queues():
            if code in named or await self._jobs.pool_has_jobs(code):
                continue
            if await self.publisher.remove(code) and await self._jobs.delete_pool_queue(code):
                log.info("removed the queue of a pool that is gone", extra={"pool": code})
                self._good_until_s = 0.0
                self._removed()

    async def run(self, pause: Pause) -> None:
        """Remove unused queues from time to time, until cancelled; log errors and go on."""
        while True:
            await pause(_EVERY_S)
            try:
                await self.remove_unused()
            except PenstockError as error:
                log.warning("the queue of a pool could not be removed", extra={"error": str(error)})

    async def _has_queue(self, pool: str) -> bool:
        now_s = stopwatch()
        if now_s >= self._good_until_s or (pool not in self._known and now_s >= self._missing_until_s):
            self._known = frozenset(await self._jobs.pool_queues())
            self._good_until_s, self._missing_until_s = now_s + _GOOD_FOR_S, now_s + _MISSING_FOR_S
        return pool in self._known


class DispatchQueue:
    """The queue that jobs are published to, or one for each pool."""

    def __init__(
        self, jobs: JobRepository, uri: str, *, per_pool: bool, removed: Callable[[], None] = lambda: None
    ) -> None:
        self.pools = PoolQueues(jobs, uri, removed) if per_pool else None
        self.publisher: Publisher = publisher_for(uri) if self.pools is None else self.pools.publisher

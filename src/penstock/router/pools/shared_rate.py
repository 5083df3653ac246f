"""A rate limit that all routers share (ROUTER-RATE-6): permits come from one place, a few ahead, and are used at once.

A permit that is not used within a second of the request for it is returned. So the place that counts them knows when
each was used to a second, and its window is longer than a minute by as much: there are never more than N in any minute.
While the place does not answer, nothing is delivered.
"""

import asyncio
import logging
from typing import Protocol

from penstock.domain.errors import PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.domain.pace.rate import GRANT_HOLD_MS, WINDOW_MS, Grant

log = logging.getLogger(__name__)

_MOST_AHEAD = 64
# How soon to look again while the answer is on its way, and after an error.
_LOOK_MS = 10
_RETRY_MS = 500


class RateLimit(Protocol):
    """What a pool asks before each attempt; `penstock.domain.pace.rate.SlidingWindow` is that of one router."""

    limit: int

    def take(self, now_ms: int) -> bool:
        """Take a permit if there is one."""
        ...

    def ready_at_ms(self, now_ms: int) -> int:
        """Return when to ask again."""
        ...

    def is_unused(self, now_ms: int) -> bool:
        """Return whether no permit was taken within the window."""
        ...

    def change_limit(self, limit: int) -> None:
        """Change the limit."""


class PermitSource(Protocol):
    """Where all routers take their permits from."""

    async def take(self, pool: str, wanted: int, limit: int, unused: Grant | None) -> Grant:
        """Take up to `wanted` permits of a pool, after returning those that were not used; PenstockError."""
        ...

    async def aclose(self) -> None:
        """Disconnect."""


class SharedRate:
    """The limit of a pool over all routers, as one of them sees it."""

    def __init__(self, source: PermitSource, pool: str, limit: int) -> None:
        self._source = source
        self._pool = pool
        self.limit = limit
        self._grant: Grant | None = None
        self._used = 0
        self._good_until_ms = 0
        self._ask_at_ms = 0
        self._used_at_ms: int | None = None
        self._wanted = 1
        self._asking: asyncio.Task[None] | None = None

    def take(self, now_ms: int) -> bool:
        """Take a permit that is here; else ask for some."""
        if self._grant is not None and self._used < self._grant.count and now_ms < self._good_until_ms:
            self._used += 1
            self._used_at_ms = now_ms
            return True
        if self._asking is None and now_ms >= self._ask_at_ms:
            self._ask(now_ms)
        return False

    def ready_at_ms(self, now_ms: int) -> int:
        """Return when to try again."""
        return max(now_ms + _LOOK_MS, self._ask_at_ms)

    def is_unused(self, now_ms: int) -> bool:
        """Return whether no permit was taken within the window, by this router."""
        return self._used_at_ms is None or self._used_at_ms + WINDOW_MS < now_ms

    def change_limit(self, limit: int) -> None:
        """Change the limit; permits already taken count against the new one."""
        self.limit = limit
        self._ask_at_ms = 0

    def _ask(self, now_ms: int) -> None:
        unused, self._grant = self._unused(), None
        # More at a time while all are used, as many as fit into the time that they are good for.
        self._wanted = max(1, self._wanted // 2) if unused is not None else min(2 * self._wanted, _MOST_AHEAD)
        self._asking = asyncio.create_task(self._take(now_ms, unused), name=f"permits-{self._pool}")

    def _unused(self) -> Grant | None:
        if self._grant is None or self._used == self._grant.count:
            return None
        return Grant(self._grant.id, self._grant.count - self._used)

    async def _take(self, asked_ms: int, unused: Grant | None) -> None:
        self._good_until_ms = asked_ms + GRANT_HOLD_MS
        try:
            grant = await self._source.take(self._pool, self._wanted, self.limit, unused)
        except PenstockError as error:
            log.warning("no permits: %s", error.message, extra={"pool": self._pool})
            self._ask_at_ms = asked_ms + _RETRY_MS
        else:
            self._grant, self._used = grant, 0
            self._ask_at_ms = asked_ms + round(grant.wait_s * SECOND_MS)
        finally:
            self._asking = None

"""Hot standby: of several nodes, the one with the lease leads, and the others wait for it to end (SCHED-LEAD-1).

    STANDING_BY ── lease taken ──► LEADING ── not renewed in time, refused, or stood down ──► STANDING_BY

A leader measures its time by its own clock from the moment of its *request* for the lease, and stops a little before
the lease ends. So it has stopped before the next leader starts, even if it cannot reach the lease's store. A process
that was paused notices it when it resumes, as `is_primary` checks the clock. The fencing token makes the database
reject a write that was under way during such a pause.

`Standby` and `Alone` also implement `penstock.router.leadership.RouterLeadership`.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from penstock.cluster.lease import Lease
from penstock.edge.clock import stopwatch

log = logging.getLogger(__name__)

TTL_S = 30.0
RENEW_S = 10.0
RETRY_S = 1.0
"""The interval at which a standby tries, and the pause of a leader that got no answer."""

_MARGIN = 0.1
_RELEASE_S = 5.0


class Leadership(Protocol):
    """Reports whether this node leads, and its fencing token."""

    @property
    def token(self) -> int | None:
        """The fencing token of this term; None if there are no other nodes."""
        ...

    def is_primary(self) -> bool:
        """Return whether this node may act as the leader now."""
        ...

    async def becomes(self, primary: bool) -> None:
        """Wait until `is_primary` is `primary`."""

    def stand_down(self) -> None:
        """Stop leading until the lease is acquired again, as another node leads."""


class Alone:
    """The leadership of a scheduler that has no standby."""

    token = None

    def is_primary(self) -> bool:
        """Return True."""
        return True

    async def becomes(self, primary: bool) -> None:
        """Return immediately, or never."""
        if not primary:
            await asyncio.Event().wait()

    def stand_down(self) -> None:
        """Do nothing, as there are no other nodes."""


class Standby:
    """Competes for a lease and renews it."""

    def __init__(
        self,
        lease: Lease,
        *,
        ttl_s: float = TTL_S,
        renew_s: float = RENEW_S,
        seconds: Callable[[], float] = stopwatch,
    ) -> None:
        self._lease = lease
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        self._retry_s = min(RETRY_S, renew_s)
        self._seconds = seconds
        # The last token acquired. Its lease may have expired, and can still be renewed if no other node took it.
        self._held_token: int | None = None
        self._until_s = float("-inf")
        self._stood_down = asyncio.Event()
        self._changed = asyncio.Event()
        self._end: asyncio.TimerHandle | None = None

    @property
    def token(self) -> int | None:
        """The fencing token of this term."""
        return self._held_token

    def is_primary(self) -> bool:
        """Return whether this node has the lease, by its own clock."""
        return self._held_token is not None and self._seconds() < self._until_s

    async def becomes(self, primary: bool) -> None:
        """Wait until `is_primary` is `primary`."""
        while self.is_primary() is not primary:
            await self._changed.wait()

    def stand_down(self) -> None:
        """Stop leading; the lease is released before the next request for it."""
        self._stop_leading()
        self._stood_down.set()

    async def run(self) -> None:
        """Compete for the lease and renew it until cancelled; then release it."""
        try:
            while True:
                wait_s = await self._contend()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stood_down.wait()
        finally:
            self._stop_leading()
            await self._release()

    async def _contend(self) -> float:
        """Request or renew the lease, and return the time until the next request."""
        try:
            async with asyncio.timeout(self._renew_s):
                if self._stood_down.is_set():
                    await self._release()
                return self._renew_s if await self._renew_or_acquire() else self._retry_s
        except Exception as error:
            log.warning("cannot request the leader's lease", extra={"error": str(error) or repr(error)})
            return self._retry_s

    async def _renew_or_acquire(self) -> bool:
        asked_s = self._seconds()
        if self._held_token is not None and await self._lease.renew(self._held_token, self._ttl_s):
            self._lead(self._held_token, asked_s)
            return True
        self._stop_leading()
        asked_s = self._seconds()
        token = await self._lease.acquire(self._ttl_s)
        self._held_token = token
        if token is not None:
            self._lead(token, asked_s)
        return token is not None

    def _lead(self, token: int, asked_s: float) -> None:
        led = self.is_primary()
        self._until_s = asked_s + self._ttl_s * (1 - _MARGIN)
        self._set_end()
        if not led and self.is_primary():
            log.info("this node leads", extra={"token": token})
            self._signal_change()

    def _stop_leading(self) -> None:
        if self._until_s != float("-inf"):
            log.info("this node no longer leads", extra={"token": self._held_token})
        self._until_s = float("-inf")
        self._set_end()
        self._signal_change()

    def _set_end(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if self._until_s != float("-inf"):
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(self._until_s - self._seconds(), self._ended)

    def _ended(self) -> None:
        # A timer may fire a little early.
        if self.is_primary():
            self._set_end()
        else:
            self._stop_leading()

    def _signal_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _release(self) -> None:
        self._stood_down.clear()
        token, self._held_token = self._held_token, None
        if token is None:
            return
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self._lease.release(token)
        except Exception as error:
            log.warning("cannot release the leader's lease; it expires by itself", extra={"error": str(error)})

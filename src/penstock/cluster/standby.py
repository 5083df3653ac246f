"""Hot standby: of several nodes the one with the lease leads; the others wait for it to end (SCHED-LEAD-1).

    STANDING_BY ── lease taken ──► LEADING ── not renewed in time, refused, or stood down ──► STANDING_BY

A leader counts its time by its own clock from the moment it *asked* for the lease, and stops a little before the
lease ends: so it has stopped before the next one starts, even if it cannot reach whoever keeps the lease. A process
that was paused finds out when it wakes, since `is_primary` looks at the clock. What may happen all the same (a write
that was under way during such a pause) is refused by the fencing token.

`Standby` and `Alone` are also the router's `penstock.router.leadership.Leadership`.
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
ASK_AGAIN_S = 1.0
"""How often a standby looks, and how soon a leader that got no answer asks again."""

_MARGIN = 0.1
_RELEASE_S = 5.0


class Leadership(Protocol):
    """Whether this node leads, and the token that proves it."""

    @property
    def token(self) -> int | None:
        """The fencing token of this term; None when there is nobody to be fenced from."""
        ...

    def is_primary(self) -> bool:
        """Whether this node may act as the leader now."""
        ...

    async def becomes(self, primary: bool) -> None:
        """Return as soon as `is_primary` is `primary`; at once if it is."""

    def stand_down(self) -> None:
        """Another node leads: do not, until the lease is ours again."""


class Alone:
    """The leadership of a scheduler that has no standby."""

    token = None

    def is_primary(self) -> bool:
        """True."""
        return True

    async def becomes(self, primary: bool) -> None:
        """Return at once, or never."""
        if not primary:
            await asyncio.Event().wait()

    def stand_down(self) -> None:
        """Nothing happens: there is no other."""


class Standby:
    """Contends for a lease and keeps it."""

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
        self._ask_again_s = min(ASK_AGAIN_S, renew_s)
        self._seconds = seconds
        # What was won last. It may have run out, and be renewed all the same if nobody followed.
        self._won: int | None = None
        self._until_s = float("-inf")
        self._stood_down = asyncio.Event()
        self._turned = asyncio.Event()
        self._end: asyncio.TimerHandle | None = None

    @property
    def token(self) -> int | None:
        """The fencing token of this term."""
        return self._won

    def is_primary(self) -> bool:
        """Whether the lease is ours, by our clock."""
        return self._won is not None and self._seconds() < self._until_s

    async def becomes(self, primary: bool) -> None:
        """Return as soon as `is_primary` is `primary`; at once if it is."""
        while self.is_primary() is not primary:
            await self._turned.wait()

    def stand_down(self) -> None:
        """Another node leads: the lease is given back before it is asked for again."""
        self._stop_leading()
        self._stood_down.set()

    async def run(self) -> None:
        """Contend for the lease, and keep it, until cancelled; then let it go."""
        try:
            while True:
                wait_s = await self._asked()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._stood_down.wait()
        finally:
            self._stop_leading()
            await self._let_go()

    async def _asked(self) -> float:
        """Ask for the lease, or for more of it; how long to wait before the next time."""
        try:
            async with asyncio.timeout(self._renew_s):
                if self._stood_down.is_set():
                    await self._let_go()
                return self._renew_s if await self._win() else self._ask_again_s
        except Exception as error:
            log.warning("the leader's lease could not be asked for", extra={"error": str(error) or repr(error)})
            return self._ask_again_s

    async def _win(self) -> bool:
        asked_s = self._seconds()
        if self._won is not None and await self._lease.renew(self._won, self._ttl_s):
            self._lead(self._won, asked_s)
            return True
        self._stop_leading()
        asked_s = self._seconds()
        token = await self._lease.acquire(self._ttl_s)
        self._won = token
        if token is not None:
            self._lead(token, asked_s)
        return token is not None

    def _lead(self, token: int, asked_s: float) -> None:
        led = self.is_primary()
        self._until_s = asked_s + self._ttl_s * (1 - _MARGIN)
        self._set_end()
        if not led and self.is_primary():
            log.info("this node leads", extra={"token": token})
            self._turn()

    def _stop_leading(self) -> None:
        if self._until_s != float("-inf"):
            log.info("this node leads no longer", extra={"token": self._won})
        self._until_s = float("-inf")
        self._set_end()
        self._turn()

    def _set_end(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if self._until_s != float("-inf"):
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(self._until_s - self._seconds(), self._ended)

    def _ended(self) -> None:
        # A timer may come a little early.
        if self.is_primary():
            self._set_end()
        else:
            self._stop_leading()

    def _turn(self) -> None:
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def _let_go(self) -> None:
        self._stood_down.clear()
        token, self._won = self._won, None
        if token is None:
            return
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self._lease.release(token)
        except Exception as error:
            log.warning("the leader's lease could not be given back; it ends by itself", extra={"error": str(error)})

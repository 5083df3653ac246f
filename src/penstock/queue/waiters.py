"""Receivers that wait for a message: woken one at a time, in the order they came."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Waiters:
    """A line of futures; waiting costs one future and one timer, and no polling.

    `ready` tells whether a receive may find something; `wake_one` is what the queues call when something arrives.
    """

    __slots__ = ("_line", "_ready", "closed")

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._line: deque[asyncio.Future[None]] = deque()
        self._ready = ready
        self.closed = False

    def __len__(self) -> int:
        return len(self._line)

    async def receive(self, lease: Callable[[], Awaitable[list[T]]], wait_s: float) -> list[T]:
        """What `lease` gives; while it gives nothing, wait up to `wait_s` for an arrival and ask again."""
        entries = await lease()
        if entries or wait_s <= 0:
            return entries
        woken = False
        try:
            async with asyncio.timeout(wait_s):
                while not entries and not self.closed:
                    if not await self._turn(first=woken):
                        break
                    woken = True
                    entries = await lease()
        except TimeoutError:
            pass
        finally:
            # Whoever was woken and took nothing, or left something, passes the call on.
            if self._line and self._ready():
                self.wake_one()
        return entries

    def wake_one(self) -> None:
        """Wake the one who has waited longest."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return

    def close(self) -> None:
        """Answer everybody with nothing, now and from now on."""
        self.closed = True
        while self._line:
            self.wake_one()

    async def _turn(self, *, first: bool) -> bool:
        """Wait at the end of the line or, when called for nothing before, at its front; False when it was closed."""
        place = asyncio.get_running_loop().create_future()
        if first:
            self._line.appendleft(place)
        else:
            self._line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.done() or place.cancelled():
                self._leave(place)
            raise
        return not self.closed

    def _leave(self, place: "asyncio.Future[None]") -> None:
        if place in self._line:
            self._line.remove(place)

"""Receivers that wait for messages of a queue, woken one at a time in order of arrival."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Waiters:
    """A line of futures: waiting costs one future and one timer, without polling.

    `ready` says whether a receive may find a message; queues call `wake_one` when one arrives. Watchers are called then
    too; they take no message, so they take no receiver's turn.
    """

    __slots__ = ("_line", "_ready", "closed", "watchers")

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._line: deque[asyncio.Future[None]] = deque()
        self._ready = ready
        self.closed = False
        self.watchers: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return len(self._line)

    async def receive(self, lease: Callable[[], Awaitable[list[T]]], wait_s: float) -> list[T]:
        """Return what `lease` returns; while that is empty, wait up to `wait_s` for an arrival and try again."""
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
            # A receiver that was woken and took nothing, or left messages, wakes the next one.
            if self._line and self._ready():
                self.wake_one()
        return entries

    def wake_one(self) -> None:
        """Wake the receiver that has waited longest."""
        if self.watchers:
            self._tell_watchers()
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return

    def close(self) -> None:
        """Return nothing to all receivers, now and later."""
        self.closed = True
        self._tell_watchers()
        while self._line:
            self.wake_one()

    def _tell_watchers(self) -> None:
        for watcher in list(self.watchers):
            watcher()

    async def _turn(self, *, first: bool) -> bool:
        """Wait at the end of the line, or at its front after waking in vain; return False once closed."""
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

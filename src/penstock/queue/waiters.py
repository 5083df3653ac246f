"""Receivers that wait for a message: woken one at a time, in the order they came."""

import asyncio
from collections import deque


class Waiters:
    """A line of futures; waiting costs one future and no polling."""

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def join(self, *, first: bool) -> "asyncio.Future[None]":
        """A place in line: at the end, or back at the front for one that was woken for nothing."""
        future = asyncio.get_running_loop().create_future()
        if first:
            self._line.appendleft(future)
        else:
            self._line.append(future)
        return future

    def leave(self, future: "asyncio.Future[None]") -> None:
        """Give a place up."""
        if future in self._line:
            self._line.remove(future)

    def wake_one(self) -> None:
        """Wake the one who has waited longest."""
        while self._line:
            future = self._line.popleft()
            if not future.done():
                future.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake everybody."""
        while self._line:
            self.wake_one()

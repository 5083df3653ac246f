"""Time: the clock port, the wall clock, and letting time pass. Rules take `now_ms`; shells read it from a Clock."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

Pause = Callable[[float], Awaitable[None]]
"""Let some seconds pass."""


class SystemClock:
    """The machine's time, held still instead of going backwards when somebody sets the clock back."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms


def wall_seconds() -> float:
    """Seconds since the Unix epoch, as the machine tells them."""
    return time.time()


class Clock(Protocol):
    """Milliseconds since the Unix epoch, never going backwards."""

    def now_ms(self) -> int:
        """The current time in milliseconds."""
        ...


async def pause(seconds: float) -> None:
    """Do nothing for a while; other tasks go on."""
    await asyncio.sleep(seconds)


def stopwatch() -> float:
    """Seconds on a clock that only serves to take differences."""
    return time.perf_counter()

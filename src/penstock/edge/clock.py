"""The clock port and the wall clock. Rules take `now_ms`; shells read it from a Clock."""

import time
from typing import Protocol


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


def stopwatch() -> float:
    """Seconds on a clock that only serves to take differences."""
    return time.perf_counter()

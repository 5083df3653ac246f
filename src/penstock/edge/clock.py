"""The clock port and the wall clock. Rules take `now_ms`; async code reads it from a Clock."""

import time
from typing import Protocol


class SystemClock:
    """The machine's time; it stands still instead of going backwards when the clock is set back."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms


def wall_seconds() -> float:
    """Return seconds since the Unix epoch."""
    return time.time()


class Clock(Protocol):
    """Milliseconds since the Unix epoch, never going backwards."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds."""
        ...


def stopwatch() -> float:
    """Return seconds on a clock that serves only to measure differences."""
    return time.perf_counter()


# A lease must run out while the machine is suspended too; Linux has a clock that goes on then.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_seconds() -> float:
    """Return seconds on a clock that is never set, to measure how long a lease has been held."""
    return time.clock_gettime(_STEADY)

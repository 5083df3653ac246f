"""The clock port and the system's clocks. Rules take `now_ms`; async code reads it from a Clock."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

_NS_PER_MS = 1_000_000
# How often the wall clock is looked at, and how much of the time between is used to come closer to it: 3 s a minute.
_LOOK_NS = 1_000_000_000
_SLEW = 20

# A lease must run out while the machine is suspended too; Linux has a clock that goes on then.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Milliseconds since the Unix epoch, never going backwards."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds."""
        ...


class _Anchor(NamedTuple):
    """What the time was at a moment of the steady clock, and how far the wall clock was ahead of it."""

    steady_ns: int
    time_ns: int
    ahead_ns: int


class SlewedTime:
    """The wall time when it was created, plus steady time: setting the wall clock neither stops it nor makes it jump.

    It comes closer to the wall clock by a twentieth of the time that passes.
    """

    def __init__(self, wall_ns: Callable[[], int], steady_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._anchor = _Anchor(steady_ns(), wall_ns(), 0)
        self._last_ms = 0

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        anchor, steady_ns = self._anchor, self._steady_ns()
        passed_ns = steady_ns - anchor.steady_ns
        most_ns = passed_ns // _SLEW
        now_ns = anchor.time_ns + passed_ns + max(-most_ns, min(most_ns, anchor.ahead_ns))
        if passed_ns >= _LOOK_NS:
            # Threads may do this at once: each writes nearly the same, and the last reading is never undercut.
            self._anchor = _Anchor(steady_ns, now_ns, self._wall_ns() - now_ns)
        now_ms = now_ns // _NS_PER_MS
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms


def _steady_ns() -> int:
    return time.clock_gettime_ns(_STEADY)


# One for the process: clocks that are created before and after a step of the wall clock must agree.
_of_process = SlewedTime(time.time_ns, _steady_ns)


class SystemClock:
    """The machine's time, which neither stops nor jumps when the machine's clock is set (NODE-CLOCK-1)."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return _of_process.now_ms()


def wall_ms(clock: Clock) -> int:
    """Return the time for others to compare with theirs, as in a signature: for the system's clock, as it is set."""
    return time.time_ns() // _NS_PER_MS if isinstance(clock, SystemClock) else clock.now_ms()


def wall_seconds() -> float:
    """Return seconds since the Unix epoch."""
    return time.time()


def stopwatch() -> float:
    """Return seconds on a clock that serves only to measure differences."""
    return time.perf_counter()


def steady_seconds() -> float:
    """Return seconds on a clock that is never set, to measure how long a lease has been held."""
    return time.clock_gettime(_STEADY)

"""The clock port and the system's clocks. Rules take `now_ms`; async code reads it from a Clock."""

import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

_NS_PER_MS = 1_000_000
_NS_PER_US = 1_000
_FIRST_ANSWERS = 5
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
        self._last_ms = 0
        self.start_at(wall_ns())

    def start_at(self, time_ns: int) -> None:
        """Let it be this time now, whatever the wall clock says."""
        self._anchor = _Anchor(self._steady_ns(), time_ns, self._wall_ns() - time_ns)

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        (since_ns, time_ns, ahead_ns), steady_ns = self._anchor, self._steady_ns()
        passed_ns = steady_ns - since_ns
        most_ns = passed_ns // _SLEW
        # This is asked several times for each message; min and max would take longer.
        now_ns = time_ns + passed_ns + (ahead_ns if -most_ns <= ahead_ns <= most_ns else _signed(most_ns, ahead_ns))
        if passed_ns >= _LOOK_NS:
            # Threads may do this at once: each writes nearly the same, and the last reading is never undercut.
            self._anchor = _Anchor(steady_ns, now_ns, self._wall_ns() - now_ns)
        now_ms = now_ns // _NS_PER_MS
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms


def _signed(size: int, sign: int) -> int:
    return size if sign > 0 else -size


def _steady_ns() -> int:
    return time.clock_gettime_ns(_STEADY)


class KeptTime:
    """The time of the parts of one machine, in a file, so that those that start later have the same.

    A part that starts after the wall clock was set back would else be behind times that are stored already: what is due
    would wait, and new events would go before older ones of their key.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def resume(self) -> bool:
        """Let the time of this process not be before the kept one; return False if that is too far ahead to be true."""
        kept, now_ns = self._read(), _of_process.now_ms() * _NS_PER_MS
        if kept is not None and kept[1] > now_ns + _MOST_AHEAD_NS:
            return False
        if kept is not None and kept[1] > now_ns:
            _of_process.start_at(kept[1])
        return True

    def follow(self) -> None:
        """Take over the time of the process that keeps it, which runs on this machine now."""
        if (kept := self._read()) is not None:
            _of_process.start_at(kept[1] + _steady_ns() - kept[0])

    def keep(self) -> None:
        """Write the time of this process."""
        # In place, which needs no room on a full disk. Without it, a later start goes by the wall clock.
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, _KEPT.pack(_steady_ns(), _of_process.now_ms() * _NS_PER_MS), 0)
            finally:
                os.close(file)

    def _read(self) -> tuple[int, int] | None:
        with suppress(OSError, struct.error):
            steady_ns, time_ns = _KEPT.unpack(self._path.read_bytes())
            return steady_ns, time_ns
        return None


CLOCK_FILE = "_PENSTOCK_CLOCK_FILE"
"""The variable by which `penstock up` names the file with the time of its parts."""

_KEPT = struct.Struct("<qq")
# Where the clock was wrong by more, that must not last for months.
_MOST_AHEAD_NS = 86_400 * 1_000_000_000

# One for the process: clocks that are created before and after a step of the wall clock must agree.
_of_process = SlewedTime(time.time_ns, _steady_ns)
if CLOCK_FILE in os.environ:
    KeptTime(Path(os.environ[CLOCK_FILE])).follow()


class SystemClock:
    """The machine's time, which neither stops nor jumps when the machine's clock is set (NODE-CLOCK-1)."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return _of_process.now_ms()


class FollowedClock:
    """The clock of another machine, asked now and then; between, and if it is set, steady time goes on (NODE-CLOCK-4).

    An answer is wrong by at most half of what it took, so those that took long are not used.
    """

    def __init__(self, ask_us: Callable[[], int], steady_ns: Callable[[], int] = _steady_ns) -> None:
        self._ask_us = ask_us
        self._steady_ns = steady_ns
        self._ahead_ns, self._usual_ns = min((self._asked() for _ in range(_FIRST_ANSWERS)), key=lambda each: each[1])
        self._time = SlewedTime(lambda: steady_ns() + self._ahead_ns, steady_ns)

    def ask(self) -> None:
        """Ask the other machine; blocks."""
        ahead_ns, took_ns = self._asked()
        if took_ns <= 2 * self._usual_ns:
            self._ahead_ns = ahead_ns
            self._usual_ns = min(took_ns, self._usual_ns)
        else:
            # The way there may have become longer for good.
            self._usual_ns += self._usual_ns // 10

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return self._time.now_ms()

    def _asked(self) -> tuple[int, int]:
        """Return how far it is ahead of the steady clock, and what the answer took."""
        asked_ns = self._steady_ns()
        now_ns = self._ask_us() * _NS_PER_US
        took_ns = self._steady_ns() - asked_ns
        return now_ns - asked_ns - took_ns // 2, took_ns


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

"""An event loop on virtual time: a minute of waiting passes in no time, and a run repeats exactly.

When nothing is ready, the loop's clock jumps to the next timer. So everything that waits on the loop (`asyncio.sleep`,
time-outs, `call_later`) is virtual. It is for programs without real I/O: a loop on which nothing can ever happen again
says so instead of hanging.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

A = TypeVar("A")

START_MS = 1_700_000_000_000


class NothingWillHappen(RuntimeError):
    """Every task waits for something that no timer and no other task will bring."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for files, lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingWillHappen("all tasks wait, and no timer is set")
        self.passed_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes only when nothing else is to be done."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.passed_s


class LoopClock:
    """The clock that goes with a virtual loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = START_MS) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, as of the loop's time."""
        # A timer that is due is due: the sum of many waits may fall short of it by less than a microsecond.
        return self._start_ms + int(self._loop.time() * 1000 + 0.001)


def run_virtual(main: Callable[[LoopClock], Coroutine[Any, Any, A]]) -> A:
    """Run a program on virtual time; it is given the clock that goes with it."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(LoopClock(runner.get_loop())))

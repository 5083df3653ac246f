"""An event loop on virtual time: waiting takes no real time, and a run repeats exactly.

When nothing is ready, the loop's clock jumps to the next timer. So everything that waits on the loop (`asyncio.sleep`,
time-outs, `call_later`) is virtual. It is for programs without real I/O: if no task can ever continue, the loop raises
NothingWillHappen instead of hanging.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

A = TypeVar("A")

START_MS = 1_700_000_000_000


class NothingWillHappen(RuntimeError):
    """Every task waits, and no timer is set that could wake one."""


class _JumpingSelector(selectors.SelectSelector):
    """Advances the time instead of waiting for files."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingWillHappen("all tasks wait, and no timer is set")
        self.passed_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes only when no task is ready."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual seconds since the loop's creation."""
        return self._jumping.passed_s


class LoopClock:
    """The clock of a virtual loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = START_MS) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def now_ms(self) -> int:
        """Return the milliseconds since the Unix epoch, at the loop's time."""
        # Rounded up a little, as the sum of many waits may be less than a microsecond short of a due timer.
        return self._start_ms + int(self._loop.time() * 1000 + 0.001)


def run_virtual(main: Callable[[LoopClock], Coroutine[Any, Any, A]]) -> A:
    """Run a program on virtual time, and pass it the loop's clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(LoopClock(runner.get_loop())))

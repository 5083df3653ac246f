"""An event loop on virtual time: waiting takes no real time, and a run repeats exactly.

When nothing is ready, the loop's clock jumps to the next timer. So everything that waits on the loop (`asyncio.sleep`,
time-outs, `call_later`) is virtual. It is for programs without real I/O: if no task can ever continue, the loop raises
NothingWillHappen instead of hanging.
"""

import asyncio
import selectors
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
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


class VirtualProcess:
    """A part of the program that can be stopped and continued, as SIGSTOP and SIGCONT do with a process.

    To it belongs everything that was started in its context. While it is stopped, none of its callbacks runs.
    """

    def __init__(self) -> None:
        self.context = copy_context()
        self.context.run(_process.set, self)
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._is_stopped = False
        self._held: list[tuple[_ProcessCallback, tuple[Any, ...], Context]] = []

    def run(self, work: Coroutine[Any, Any, A]) -> "asyncio.Task[A]":
        """Start a task of the process."""
        return asyncio.get_running_loop().create_task(work, context=self.context)

    def stop(self) -> None:
        """Hold all callbacks from now on."""
        self._is_stopped = True

    def go_on(self) -> None:
        """Run the held callbacks, in the order in which they became due, and then all others."""
        self._is_stopped = False
        held, self._held = self._held, []
        for callback, args, context in held:
            asyncio.get_running_loop().call_soon(callback, *args, context=context)

    def holds(self, callback: "_ProcessCallback", args: tuple[Any, ...], context: Context) -> bool:
        """Return whether the process is stopped; if so, keep the callback until it goes on."""
        if self._is_stopped:
            self._held.append((callback, args, context))
        return self._is_stopped


_process: ContextVar[VirtualProcess | None] = ContextVar("_process", default=None)


class _ProcessCallback:
    """A callback of a process."""

    def __init__(self, process: VirtualProcess, callback: Callable[..., object], context: Context) -> None:
        self.handle: asyncio.Handle | None = None
        self._process = process
        self._callback = callback
        self._context = context

    def __call__(self, *args: Any) -> None:
        # Cancelled while it was held.
        if self.handle is not None and self.handle.cancelled():
            return
        if not self._process.holds(self, args, self._context):
            self._callback(*args)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes only when no task is ready."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback."""
        own = _of_process(callback, context)
        if own is None:
            return super().call_soon(callback, *args, context=context)
        handle = super().call_soon(own, *args, context=context)
        own.handle = own.handle or handle
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback at a time."""
        own = _of_process(callback, context)
        handle = super().call_at(when, own or callback, *args, context=context)
        if own is not None:
            own.handle = handle
        return handle

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        """Schedule a coroutine."""
        task = super().create_task(coro, name=name, context=context)
        process = _process.get() if context is None else context.get(_process)
        if process is not None:
            process.tasks.add(task)
        return task

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


def _of_process(callback: Callable[..., object], context: Context | None) -> _ProcessCallback | None:
    if isinstance(callback, _ProcessCallback):
        return callback
    process = _process.get() if context is None else context.get(_process)
    return None if process is None else _ProcessCallback(process, callback, context or copy_context())


def run_virtual(main: Callable[[LoopClock], Coroutine[Any, Any, A]]) -> A:
    """Run a program on virtual time, and pass it the loop's clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(LoopClock(runner.get_loop())))

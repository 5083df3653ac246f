"""A pulse: how old an answer may be that a program reads, even if its process was stopped while it waited.

A lease starts when the server sends its answer. A process that was stopped (SIGSTOP, a suspended machine, a blocked
event loop) reads the answer much later. The pulse ticks while an answer is awaited: what had arrived before the tick
before the last one would have been read then. On its way an answer may have been for a few seconds more.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

INTERVAL_S = 0.25
# The longest time that an answer is expected to travel.
TRAVEL_S = 5.0


class LoopPulse:
    """Ticks while answers are awaited; without waits it sets no timer."""

    def __init__(self) -> None:
        self._waits = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last_s = -inf
        self._before_s = -inf

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Tick during a wait."""
        self._waits += 1
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._last_s = self._before_s = loop.time()
            self._timer = loop.call_later(INTERVAL_S, self._tick, loop)
        try:
            yield
        finally:
            self._waits -= 1

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._before_s, self._last_s = self._last_s, loop.time()
        self._timer = loop.call_later(INTERVAL_S, self._tick, loop) if self._waits else None

    def leased_s(self, sent_s: float, visibility_s: float) -> float:
        """Return when the leases of an answer started at the earliest; to be called when it was read.

        Half of a short lease is left in any case: messages would not be delivered otherwise.
        """
        return max(sent_s, self._before_s - min(TRAVEL_S, visibility_s / 2))

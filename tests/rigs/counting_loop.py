"""A virtual loop that shows whether a program is idle."""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.testing.virtual_loop import VirtualLoop


class CountingLoop(VirtualLoop):
    """A loop that counts how often it goes round."""

    rounds = 0

    def _run_once(self) -> None:
        self.rounds += 1
        super()._run_once()  # type: ignore[misc]

    def timers(self) -> list[float]:
        """When the timers that are set go off."""
        heap: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return [handle.when() for handle in heapq.nsmallest(len(heap), heap) if not handle.cancelled()]


def run_counting(main: Callable[[CountingLoop], Coroutine[Any, Any, None]]) -> None:
    """Run a program on such a loop, which it is passed."""
    loop = CountingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop))

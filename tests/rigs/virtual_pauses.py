"""Pauses that end when a test lets time pass."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from penstock.testing.clock import VirtualClock

_ROUNDS = 50
_PATIENCE_S = 60


class VirtualPauses:
    """Stands in for `penstock.edge.clock.pause`; remembers how long each pause was asked to be."""

    def __init__(self, clock: VirtualClock) -> None:
        self.asked: list[float] = []
        self._clock = clock
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    async def pause(self, seconds: float) -> None:
        """Wait until so much virtual time has passed."""
        self.asked.append(seconds)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (self._clock.now_ms() + round(seconds * 1000), len(self.asked), done))
        await done

    async def advance(self, seconds: float) -> None:
        """Let time pass, ending pauses in order, and let everyone go on as far as they can."""
        end_ms = self._clock.now_ms() + round(seconds * 1000)
        await settle()
        while self._waiting and self._waiting[0][0] <= end_ms:
            due_ms, _, done = heappop(self._waiting)
            self._clock.advance((due_ms - self._clock.now_ms()) / 1000)
            if not done.done():
                done.set_result(None)
            await settle()
        self._clock.advance((end_ms - self._clock.now_ms()) / 1000)


async def settle() -> None:
    """Let every task that can run come to its next wait."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Let others work until a condition holds; a test that waits in vain fails instead of hanging."""
    async with asyncio.timeout(_PATIENCE_S):
        while not holds():  # noqa: ASYNC110  there is no event for what a test looks at
            await asyncio.sleep(0)

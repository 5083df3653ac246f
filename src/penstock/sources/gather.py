"""Gathers what is asked one by one into batches: calls of one moment share a round trip, or a commit.

A batch that is full goes at once, as long as `at_once` are not under way. One that is not full goes in the event
loop's next round if none is under way, else when one ends: so the busier the other side, the fuller the batches, and
an idle one is never made to wait.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

# Carries a batch out; per item None or why it failed. What it raises, all of them failed with.
CarryOut = Callable[[Sequence[T]], Awaitable["Sequence[Exception | None]"]]


class Gatherer(Generic[T]):
    """Carries items out in batches, in the order they were given if `at_once` is 1."""

    def __init__(self, carry_out: CarryOut[T], *, most: int, at_once: int) -> None:
        self._carry_out = carry_out
        self._most = most
        self._at_once = at_once
        self._waiting: deque[tuple[T, asyncio.Future[None]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._round: asyncio.Handle | None = None

    def add(self, item: T) -> "asyncio.Future[None]":
        """Have an item carried out; done when it is."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((item, future))
        if len(self._waiting) >= self._most and len(self._under_way) < self._at_once:
            self._start()
        elif self._round is None and not self._under_way:
            self._round = loop.call_soon(self._next_round)
        return future

    async def drain(self) -> None:
        """Wait until everything that was given is carried out."""
        while self._waiting or self._under_way:
            if not self._under_way:
                self._start()
            await asyncio.wait(self._under_way)

    def _next_round(self) -> None:
        self._round = None
        if self._waiting and not self._under_way:
            self._start()

    def _start(self) -> None:
        waiting = self._waiting
        batch = [waiting.popleft() for _ in range(min(len(waiting), self._most))]
        task = asyncio.get_running_loop().create_task(self._carry(batch))
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        while self._waiting and (not self._under_way or self._fills_another()):
            self._start()

    def _fills_another(self) -> bool:
        return len(self._waiting) >= self._most and len(self._under_way) < self._at_once

    async def _carry(self, batch: "list[tuple[T, asyncio.Future[None]]]") -> None:
        try:
            results = await self._carry_out([item for item, _ in batch])
        except Exception as error:
            results = [error] * len(batch)
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if result is None:
                future.set_result(None)
            else:
                future.set_exception(result)
                # Looked at, so that asyncio does not complain: who settles a message need not wait for it.
                future.exception()

"""Gathers what is asked one by one into batches: calls of one moment share a round trip, or a commit.

A batch that is full goes at once, as long as `at_once` are not under way. One that is not full goes in the event
loop's next round if none is under way, else when one ends: so the busier the other side, the fuller the batches, and
an idle one is never made to wait.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from penstock.queues.errors import BrokerUnavailable
from penstock.queues.port import Confirmation

T = TypeVar("T")

# Carries a batch out; per item None or why it failed. What it raises, all of them failed with.
CarryOut = Callable[[Sequence[T]], Awaitable["Sequence[Exception | None]"]]


class Gatherer(Generic[T]):
    """Carries items out in batches, in the order they were given if `at_once` is 1."""

    def __init__(self, carry_out: CarryOut[T], *, most: int, at_once: int) -> None:
        self._carry_out = carry_out
        self._most = most
        self._at_once = at_once
        self._waiting: deque[tuple[T, Confirmation]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._round: asyncio.Handle | None = None

    def add(self, item: T) -> Confirmation:
        """Have an item carried out; told when it is."""
        confirmation = Confirmation()
        self._waiting.append((item, confirmation))
        if len(self._waiting) >= self._most and len(self._under_way) < self._at_once:
            self._start()
        elif self._round is None and not self._under_way:
            self._round = asyncio.get_running_loop().call_soon(self._next_round)
        return confirmation

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

    async def _carry(self, batch: list[tuple[T, Confirmation]]) -> None:
        try:
            results = await self._carry_out([item for item, _ in batch])
        except Exception as error:
            results = [error] * len(batch)
        except asyncio.CancelledError:
            for _, confirmation in batch:
                confirmation.tell(BrokerUnavailable("the settlement was broken off; the message will come again"))
            raise
        for (_, confirmation), result in zip(batch, results, strict=True):
            confirmation.tell(result)

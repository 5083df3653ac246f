"""Collects single items into batches, so that calls made at the same time share a round trip or a commit.

A full batch starts immediately unless `max_running` are running. A partial batch starts in the next iteration of the
event loop if none is running, else when one ends. So batches grow with the load, and an idle broker never waits.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from penstock.queues.errors import BrokerUnavailable
from penstock.queues.port import Confirmation

T = TypeVar("T")

# Processes a batch and returns an error or None per item; if it raises, every item fails with that error.
RunBatch = Callable[[Sequence[T]], Awaitable["Sequence[Exception | None]"]]


class Batcher(Generic[T]):
    """Processes items in batches; in the order they were added if `max_running` is 1."""

    def __init__(self, run_batch: RunBatch[T], *, max_batch: int, max_running: int) -> None:
        self._run_batch = run_batch
        self._max_batch = max_batch
        self._max_running = max_running
        self._waiting: deque[tuple[T, Confirmation]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._scheduled: asyncio.Handle | None = None

    def add(self, item: T) -> Confirmation:
        """Add an item, and return the confirmation of its processing."""
        confirmation = Confirmation()
        self._waiting.append((item, confirmation))
        if len(self._waiting) >= self._max_batch and len(self._running) < self._max_running:
            self._start()
        elif self._scheduled is None and not self._running:
            self._scheduled = asyncio.get_running_loop().call_soon(self._start_scheduled)
        return confirmation

    async def drain(self) -> None:
        """Wait until every item has been processed."""
        while self._waiting or self._running:
            if not self._running:
                self._start()
            await asyncio.wait(self._running)

    def _start_scheduled(self) -> None:
        self._scheduled = None
        if self._waiting and not self._running:
            self._start()

    def _start(self) -> None:
        waiting = self._waiting
        batch = [waiting.popleft() for _ in range(min(len(waiting), self._max_batch))]
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        while self._waiting and (not self._running or self._can_start_full_batch()):
            self._start()

    def _can_start_full_batch(self) -> bool:
        return len(self._waiting) >= self._max_batch and len(self._running) < self._max_running

    async def _run(self, batch: list[tuple[T, Confirmation]]) -> None:
        try:
            results = await self._run_batch([item for item, _ in batch])
        except Exception as error:
            results = [error] * len(batch)
        except asyncio.CancelledError:
            for _, confirmation in batch:
                confirmation.resolve(BrokerUnavailable("the settlement was cancelled; the message will be redelivered"))
            raise
        for (_, confirmation), result in zip(batch, results, strict=True):
            confirmation.resolve(result)

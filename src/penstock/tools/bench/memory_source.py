"""A source in memory that costs next to nothing, so that a benchmark measures the router."""

import asyncio
from collections.abc import Iterator, Sequence

from penstock.queues import Confirmation, Received, confirmed

BATCH = 10


class MemorySource:
    """Returns messages in batches, each once, and counts settlements.

    Like a queue with a backlog, it always has the next batch ready.
    """

    name = "bench"
    address = "memory:"
    ordered = True
    exclusive = False
    visibility_s: float | None = 30.0

    def __init__(self, messages: Iterator[Received], expected: int) -> None:
        self._messages = messages
        self._left = expected
        self.all_settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Do nothing."""

    async def receive(self) -> list[Received]:
        """Return the next messages; wait forever after the last."""
        batch = [message for _, message in zip(range(BATCH), self._messages, strict=False)]
        if not batch:
            await asyncio.Event().wait()
        return batch

    def ack(self, message: Received) -> Confirmation:
        """Count a settled message."""
        self._left -= 1
        if self._left == 0 and not self.all_settled.done():
            self.all_settled.set_result(None)
        return confirmed()

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Count a settled message; the benchmark checks the deliveries itself."""
        return self.ack(message)

    async def extend(self, messages: Sequence[Received]) -> None:
        """Do nothing, as leases never end."""

    async def close(self) -> None:
        """Do nothing."""

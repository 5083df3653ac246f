"""A source in memory: what it hands out costs nothing, so that a benchmark measures the router."""

import asyncio
from collections.abc import Iterator, Sequence

from penstock.queues import Confirmation, Received, confirmed

BATCH = 10


class MemorySource:
    """Hands out what it was given, in batches, once; counts what is settled.

    As a queue with a backlog does, it always has the next batch ready: what there is room for is in the router.
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
        """Nothing to do."""

    async def receive(self) -> list[Received]:
        """The next messages; then none for ever."""
        batch = [message for _, message in zip(range(BATCH), self._messages, strict=False)]
        if not batch:
            await asyncio.Event().wait()
        return batch

    def ack(self, message: Received) -> Confirmation:
        """One less to come."""
        self._left -= 1
        if self._left == 0 and not self.all_settled.done():
            self.all_settled.set_result(None)
        return confirmed()

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """One less to come, too; whoever measures looks at how many were delivered."""
        return self.ack(message)

    async def extend(self, messages: Sequence[Received]) -> None:
        """Leases never end here."""

    async def close(self) -> None:
        """Nothing to do."""

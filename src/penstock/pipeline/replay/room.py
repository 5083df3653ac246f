"""How far a task reads ahead: so many jobs and bytes, and no more until some are done."""

import asyncio

MOST_JOBS = 1000
MOST_BYTES = 32 * 1024 * 1024


class Room:
    """A place to wait for what was read before."""

    def __init__(self, most_jobs: int = MOST_JOBS, most_bytes: int = MOST_BYTES) -> None:
        self._most_jobs = most_jobs
        self._most_bytes = most_bytes
        self._jobs = 0
        self._bytes = 0
        self._left = asyncio.Event()

    async def enter(self, size_bytes: int) -> None:
        """Wait until there is room; one job always has some, whatever its size."""
        while self._jobs >= self._most_jobs or (self._jobs and self._bytes + size_bytes > self._most_bytes):
            self._left.clear()
            await self._left.wait()
        self._jobs += 1
        self._bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """A job is done."""
        self._jobs -= 1
        self._bytes -= size_bytes
        self._left.set()

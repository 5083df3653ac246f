"""The call that there may be jobs to claim."""

import asyncio


class JobSignal:
    """Set from any thread; waited for on the loop. Several calls before a wait are one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()

    def call(self) -> None:
        """There may be jobs."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._called.set)

    async def wait(self) -> None:
        """Return when somebody has called since the last wait."""
        await self._called.wait()
        self._called.clear()

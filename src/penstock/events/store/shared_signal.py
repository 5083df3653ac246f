"""A call to the processes that wait for jobs of one SQLite file."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from penstock.edge.randomness import random_bytes
from penstock.events.store.database import JobSignal

# How often the one who waits looks whether another process called: less often while nothing happens.
_FIRST_LOOK_S = 0.01
_LAST_LOOK_S = 0.03
_LOOK_GROWTH = 1.02
_NUMBER_BYTES = 8


class SharedSignal(JobSignal):
    """A signal that other processes give, too: each call writes a new number to a file, which those who wait look at.

    A number that a crash kept from being written is made up for by the poll of the one who waits.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._seen = self._number()

    async def wait(self) -> None:
        """Return when there was a call since the last wait, by this process or another."""
        look_s = _FIRST_LOOK_S
        while not self._called.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(look_s):
                    await self._called.wait()
            look_s = min(look_s * _LOOK_GROWTH, _LAST_LOOK_S)
            self._look()
        self._called.clear()

    def call_others(self) -> None:
        """Call the processes that wait for jobs of this file."""
        # The reader of another process may miss a number that is replaced at once, but not the newest one.
        os.pwrite(self._file, random_bytes(_NUMBER_BYTES), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _look(self) -> None:
        number = self._number()
        if number != self._seen:
            self._seen = number
            self._called.set()

    def _number(self) -> bytes:
        return os.pread(self._file, _NUMBER_BYTES, 0)

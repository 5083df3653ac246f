"""Wakes the consumers of an embedded queue that live in this process, on whichever event loop."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.sources.uri import EmbeddedUri

_listeners: dict[EmbeddedUri, set["Bell"]] = {}


class Bell:
    """Rung when something may have come."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def rung(self, within_s: float) -> bool:
        """Whether it was rung since the last call, at the latest after a while."""
        try:
            async with asyncio.timeout(within_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


@contextmanager
def listening(uri: EmbeddedUri) -> Iterator[Bell]:
    """A bell of this queue."""
    bell = Bell()
    _listeners.setdefault(uri, set()).add(bell)
    try:
        yield bell
    finally:
        bells = _listeners[uri]
        bells.discard(bell)
        if not bells:
            del _listeners[uri]


def ring(uri: EmbeddedUri) -> None:
    """Something has come, or has become free."""
    for bell in tuple(_listeners.get(uri, ())):
        bell.ring()

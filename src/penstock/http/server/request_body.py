"""The body of a long request, passed on piece by piece, so that an app can refuse the request before it is read."""

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.domain.limits import KIB

MAX_HELD_BYTES = 64 * KIB
"""Reading pauses while this much waits for the app."""


class RequestBody:
    """Holds received pieces until the app takes them."""

    def __init__(self, when_wanted: Callable[[], None]) -> None:
        self._when_wanted = when_wanted
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._changed: asyncio.Future[None] | None = None
        self._is_cut = False
        self.is_complete = False

    @property
    def is_full(self) -> bool:
        """Whether enough waits for the app."""
        return self._held_bytes >= MAX_HELD_BYTES

    def add(self, piece: bytes) -> None:
        """Add a received piece."""
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        self._wake()

    def end(self) -> None:
        """Note that everything was received."""
        self.is_complete = True
        self._wake()

    def cut(self) -> None:
        """Note that the rest will not be received."""
        self._is_cut = True
        self._wake()

    async def take(self) -> bytes | None:
        """Return what was received since the last time, at the end b""; None if the rest will not be received."""
        self._when_wanted()
        while not (self._pieces or self.is_complete or self._is_cut):
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed
        if self._is_cut:
            return None
        taken = b"".join(self._pieces)
        self._pieces.clear()
        self._held_bytes = 0
        return taken

    @property
    def is_taken(self) -> bool:
        """Whether the app has taken everything."""
        return self.is_complete and not self._pieces

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

"""The queue's publisher, opened when it can be: a queue that is not there yet does not stop the scheduler.

How long to wait before trying again: longer after every failure, not at all after a success.
"""

import logging
from collections.abc import Awaitable, Callable

from penstock.events.dispatch.settings import Counts
from penstock.queues.port import Publisher


class Backoff:
    """A delay that doubles."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.delay_s = 0.0

    def failed(self) -> None:
        """Wait longer than before."""
        self.delay_s = min(self.delay_s * 2 or self._first_s, self._most_s)

    def succeeded(self) -> None:
        """Wait no more."""
        self.delay_s = 0.0


log = logging.getLogger(__name__)

Pause = Callable[[float], Awaitable[None]]

_FIRST_S = 0.5
_MOST_S = 10.0


class PatientPublisher:
    """Tries until the publisher is open, and keeps it open."""

    def __init__(self, publisher: Publisher, counts: Counts, pause: Pause) -> None:
        self._publisher = publisher
        self._counts = counts
        self._pause = pause
        self._is_open = False

    async def opened(self) -> Publisher:
        """The publisher, as soon as it could be opened."""
        backoff = Backoff(_FIRST_S, _MOST_S)
        while not self._is_open:
            try:
                await self._publisher.open()
            except Exception as error:
                backoff.failed()
                self._counts.errors += 1
                self._counts.trouble = f"the queue cannot be opened: {error}"
                log.warning("the queue cannot be opened", extra={"error": str(error), "again_in_s": backoff.delay_s})
                await self._pause(backoff.delay_s)
            else:
                self._is_open = True
                self._counts.trouble = None
        return self._publisher

    async def close(self) -> None:
        """Hang up, if it was open."""
        if self._is_open:
            self._is_open = False
            await self._publisher.close()

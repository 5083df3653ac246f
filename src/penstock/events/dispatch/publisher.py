"""The queue's publisher, opened when it can be: a queue that is not there yet does not stop the scheduler."""

import logging

from penstock.domain.retry import Backoff
from penstock.edge.pause import Pause
from penstock.events.dispatch.settings import Counts
from penstock.queues import Publisher

log = logging.getLogger(__name__)

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

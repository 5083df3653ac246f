"""Settlement: a message is acked or nacked exactly once, and tracked until the queue has confirmed it."""

import asyncio
import logging
from functools import partial

from penstock.queues import Confirmation, Received, Source
from penstock.router.intake.tracker import InFlightTracker, Stage, TrackedMessage

_log = logging.getLogger(__name__)


class Settlements:
    """The settlements of one consumer's messages."""

    def __init__(self, source: Source, tracker: InFlightTracker) -> None:
        self._source = source
        self._tracker = tracker
        self._ended = asyncio.Event()
        self.under_way = 0
        self.acked = 0
        self.nacked = 0
        self.failures = 0

    def ack(self, message: TrackedMessage) -> None:
        """Remove a message for good."""
        self.acked += 1
        self._settle(message, None)

    def nack(self, message: TrackedMessage, delay_s: int) -> None:
        """Return a message to its queue, to be redelivered after the delay."""
        self.nacked += 1
        self._settle(message, delay_s)

    def abandon(self, message: TrackedMessage) -> None:
        """Forget a message, as its lease has ended and its queue redelivers it."""
        message.origin.release_lease(message)
        self._tracker.remove(message)

    def _settle(self, message: TrackedMessage, delay_s: int | None) -> None:
        assert message.stage is not Stage.SETTLING, "a message is settled once"
        message.stage = Stage.SETTLING
        self.under_way += 1
        self._send(message, delay_s)

    def _send(self, message: TrackedMessage, delay_s: int | None) -> None:
        source = message.origin.source
        received = message.received
        settlement = source.ack(received) if delay_s is None else source.nack(received, delay_s)
        settlement.listen(partial(self._sent, message, delay_s))

    def _sent(self, message: TrackedMessage, delay_s: int | None, error: Exception | None) -> None:
        if message.reissued:
            # It was redelivered in the meantime, and the redelivery must be settled too.
            message.reissued = False
            self._send(message, delay_s)
            return
        self._end(error)
        message.origin.release_lease(message)
        self._tracker.remove(message)

    def reject(self, received: Received, delay_s: int) -> None:
        """Return a message that is not tracked to its queue."""
        self.nacked += 1
        self._watch(self._source.nack(received, delay_s))

    def discard(self, received: Received) -> None:
        """Remove a message that is not tracked for good."""
        self.acked += 1
        self._watch(self._source.ack(received))

    def _watch(self, settlement: Confirmation) -> None:
        self.under_way += 1
        settlement.listen(self._end)

    def _end(self, error: Exception | None) -> None:
        self.under_way -= 1
        if not self.under_way:
            self._ended.set()
        if error is not None:
            # At-least-once: the message is redelivered when its lease expires.
            self.failures += 1
            _log.warning("queue %s: cannot settle a message: %s", self._source.name, error)

    async def wait_until_settled(self) -> None:
        """Wait until no settlement is under way."""
        while self.under_way:
            self._ended.clear()
            await self._ended.wait()

"""The two ports of a queue: a Source to consume from, and a Publisher to publish to.

Every source passes tests/conformance/test_sources.py. What the router relies on:

- At least once. A message that was received and neither acked nor nacked is redelivered when its lease ends, or when
  the source is closed. Cancelling `receive` loses nothing.
- `broker_id` is the same in each delivery of a message, `handle` belongs to one delivery. An `ordered` source never
  returns a message of a group before an earlier one that was nacked, is leased elsewhere, or is delayed; within one
  `receive` the messages of a group are in order.
- `ack`, `nack` and `extend` combine calls made at the same time into as few round trips as the broker allows.
- Several `receive` calls may run at once without breaking a group's order (ROUTER-QUEUE-3).
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import Protocol

import msgspec

# Called with None, or with the error.
Listener = Callable[[Exception | None], None]

_log = logging.getLogger(__name__)


class Confirmation:
    """The result of an ack or nack, to be awaited, listened to, or ignored.

    It costs less than a future per message: its listener runs when the broker answers, not in a later iteration of the
    event loop (docs/decisions/0018).
    """

    __slots__ = ("_listener", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None
        self._listener: Listener | None = None

    def resolve(self, error: Exception | None) -> None:
        """Set the result: None, or the error."""
        self.done = True
        self.error = error
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                listener(error)
            except Exception:
                # The caller resolves a whole batch: one listener must not prevent the others from running.
                _log.exception("the listener of a settlement failed")

    def listen(self, listener: Listener) -> None:
        """Call `listener` with the result, now if there is one."""
        assert self._listener is None, "a confirmation has one listener at most"
        if self.done:
            listener(self.error)
        else:
            self._listener = listener

    def __await__(self) -> Generator[object, None, None]:
        """Wait for the result; raise the error if there is one."""
        if not self.done:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.listen(lambda _: None if ended.done() else ended.set_result(None))
            yield from ended
        if self.error is not None:
            raise self.error


def confirmed(error: Exception | None = None) -> Confirmation:
    """Return a confirmation that already has its result."""
    confirmation = Confirmation()
    confirmation.resolve(error)
    return confirmation


class Received(msgspec.Struct, eq=False, gc=False):
    """A received message. The router replaces `handle` when the message is redelivered."""

    broker_id: str
    body: bytes
    group: str | None
    handle: str
    # Whether it keeps its place in its group when it is nacked.
    ordered: bool = False
    # When its lease started at the earliest, on the event loop's clock; infinite if the lease has no end of its own.
    leased_s: float = inf


class Source(Protocol):
    """A queue to consume."""

    name: str
    # The queue's URI without password or token.
    address: str
    # Whether a nacked message keeps its place in its group.
    ordered: bool
    # Whether this client keeps group order, not the broker, so that only one client may consume at a time.
    exclusive: bool
    # The time of a lease after a delivery or an extension; None if it lasts as long as the connection.
    visibility_s: float | None

    async def open(self) -> None:
        """Connect and check that the queue exists; raise Unavailable or NotFound if not."""

    async def receive(self) -> list[Received]:
        """Return the next messages; wait for some until the poll ends, then return none.

        Raise Unavailable if the broker did not answer; the caller polls again.
        """
        ...

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good; the confirmation ends when the broker has confirmed it.

        An expired handle is not an error: the message is removed at its next delivery. The error is Unavailable if the
        broker did not answer: the message will be redelivered.
        """
        ...

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Return a message to the queue, to be redelivered after the delay. An expired handle is not an error."""
        ...

    async def extend(self, messages: Sequence[Received]) -> None:
        """Extend the leases of messages by `visibility_s`; expired handles are ignored."""

    async def close(self) -> None:
        """Finish acks and nacks, and disconnect; the other messages are redelivered to other consumers."""


class Publication(msgspec.Struct, frozen=True):
    """A message to publish."""

    body: bytes
    group: str | None
    # Publications with the same id within five minutes are one message, where the queue supports it.
    dedup_id: str | None
    # The pool that delivers it, where each pool has a queue of its own; None for the queue that all can use.
    pool: str | None = None


class Publisher(Protocol):
    """A queue to publish to."""

    async def open(self) -> None:
        """Connect and check that the queue exists; raise Unavailable or NotFound if not."""

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Publish messages in order; return per message None, or the error. A duplicate is not an error.

        The first message of a group that fails makes all later ones of the group fail, so that they never overtake it.
        """
        ...

    async def settled_before_ms(self, pool: str | None = None) -> int:
        """Return a moment: what was published before it is not in the queue any more, not even leased.

        That is when the oldest message was published, or now if there is none, by the broker's clock or ours. `pool`
        names the queue where there are several. Raise Unavailable if the broker did not answer.
        """
        ...

    async def close(self) -> None:
        """Disconnect."""

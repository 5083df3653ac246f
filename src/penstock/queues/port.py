"""The two ports of a queue: a Source that hands messages out, and a Publisher that takes them.

Every source passes tests/conformance/test_sources.py. What the router relies on:

- At least once. A message that was handed out and neither acked nor nacked comes again: when its lease ends, or when
  the source is closed. Cancelling `receive` loses nothing.
- `broker_id` is the same each time one message is handed out, `handle` belongs to one hand-out. A source that is
  `ordered` hands out no later message of a group before an earlier one that was given back, is leased elsewhere, or
  waits out its delay; within one `receive` messages of a group stand in order.
- `ack`, `nack` and `extend` gather what is called in the same moment into as few round trips as the broker allows.
- Several `receive` calls may run at once, and never put a group out of order (ROUTER-QUEUE-3).

What a broker says of an ack or a nack, once it has said it.

Leaner than a future, of which every message would need one: who listens is told in the moment the broker answers, not
in a later round of the event loop. What that saves is in decision 18.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import msgspec

# Hears None, or why the broker did not do it.
Listener = Callable[[Exception | None], None]

_log = logging.getLogger(__name__)


class Confirmation:
    """A settlement under way: one may listen to its end or await it, nobody has to."""

    __slots__ = ("_listener", "error", "told")

    def __init__(self) -> None:
        self.told = False
        self.error: Exception | None = None
        self._listener: Listener | None = None

    def tell(self, error: Exception | None) -> None:
        """The broker has done it, or it failed."""
        self.told = True
        self.error = error
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                listener(error)
            except Exception:
                # Told in a row with others, who must hear of theirs whatever this one does.
                _log.exception("the end of a settlement could not be handled")

    def listen(self, listener: Listener) -> None:
        """Call `listener` at the end, or now if that has been."""
        assert self._listener is None, "one listens at most"
        if self.told:
            listener(self.error)
        else:
            self._listener = listener

    def __await__(self) -> Generator[object, None, None]:
        """Wait for the end; raises why it failed."""
        if not self.told:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.listen(lambda _: None if ended.done() else ended.set_result(None))
            yield from ended
        if self.error is not None:
            raise self.error


def confirmed(error: Exception | None = None) -> Confirmation:
    """A settlement that needs no broker, or that cannot be."""
    confirmation = Confirmation()
    confirmation.tell(error)
    return confirmation


class Received(msgspec.Struct, eq=False, gc=False):
    """A message handed out, until it is settled. The router puts a newer `handle` in when it comes again."""

    broker_id: str
    body: bytes
    group: str | None
    handle: str


class Source(Protocol):
    """A queue to consume."""

    name: str
    # Where the queue is, fit for people's eyes: no password, no token.
    address: str
    # Whether a message that is given back keeps its place in its group.
    ordered: bool
    # Whether group order is kept by this client and not by the broker: then only one may consume the queue at a time.
    exclusive: bool
    # How long a message is ours after it was handed out or extended; None if as long as the connection lives.
    visibility_s: float | None

    async def open(self) -> None:
        """Connect, and make sure that the queue is there; Unavailable or NotFound if not."""

    async def receive(self) -> list[Received]:
        """The next messages, at once if there are any, else when some come or the poll ends (then none).

        Unavailable if the broker did not answer; the caller polls again.
        """
        ...

    def ack(self, message: Received) -> Confirmation:
        """Remove a message for good; done when the broker has confirmed it.

        A handle that has expired is no error: the message is removed when it is handed out the next time. A broker that
        did not answer is Unavailable: the message will come again.
        """
        ...

    def nack(self, message: Received, delay_s: int = 0) -> Confirmation:
        """Give a message back, to be handed out again after the delay. An expired handle is no error."""
        ...

    async def extend(self, messages: Sequence[Received]) -> None:
        """Keep the messages ours for another `visibility_s`; one whose handle has expired is passed over."""

    async def close(self) -> None:
        """Finish what was acked and nacked, and hang up; whatever else was handed out comes again to others."""


class Publication(msgspec.Struct, frozen=True):
    """A message to put into a queue."""

    body: bytes
    group: str | None
    # Two publications with one id within five minutes are one message, where the queue supports it.
    dedup_id: str | None


class Publisher(Protocol):
    """A queue to publish to."""

    async def open(self) -> None:
        """Connect, and make sure that the queue is there; Unavailable or NotFound if not."""

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        """Put messages in, in order; per message None, or why it is not in. A deduplicated one is in.

        Within a group the first that fails fails all later ones: they are never put in before it.
        """
        ...

    async def close(self) -> None:
        """Hang up."""

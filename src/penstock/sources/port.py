"""The two ports of a queue: a Source that hands messages out, and a Publisher that takes them.

Every source passes tests/conformance/test_sources.py. What the router relies on:

- At least once. A message that was handed out and neither acked nor nacked comes again: when its lease ends, or when
  the source is closed. Cancelling `receive` loses nothing.
- `broker_id` is the same each time one message is handed out, `handle` belongs to one hand-out. A source that is
  `ordered` hands out no later message of a group before an earlier one that was given back, is leased elsewhere, or
  waits out its delay; within one `receive` messages of a group stand in order.
- `ack`, `nack` and `extend` gather what is called in the same moment into as few round trips as the broker allows.
- Several `receive` calls may run at once, and never put a group out of order (ruling 14).
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.sources.confirmation import Confirmation


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

"""The protocols of a connection and of its owner, the connections of an origin."""

import asyncio
from typing import NamedTuple, Protocol

from penstock.delivery.http.answer import Answer
from penstock.delivery.http.request import RequestHead
from penstock.domain.signing import Signature
from penstock.edge.outbox import Outbox

NEVER = float("inf")


class Deadline(NamedTuple):
    """When a request has failed if it has no answer, and how long after it was sent."""

    at_s: float
    after_s: float


NO_DEADLINE = Deadline(NEVER, NEVER)


class ConnectionOwner(Protocol):
    """The owner of a connection, notified of its changes."""

    outbox: Outbox

    def opened(self, connection: "Connection") -> None:
        """Record an open connection."""

    def freed(self, connection: "Connection") -> None:
        """Record that a connection can take a request again, or more than before."""

    def lost(self, connection: "Connection") -> None:
        """Record a closed connection."""


class Connection(Protocol):
    """A connection to an endpoint's host."""

    is_shared: bool  # whether several requests can be pending at once
    opened_s: float
    idle_since_s: float  # NEVER while a request is pending

    async def ready(self) -> None:
        """Wait until requests can be sent; raise ConnectFailed if that fails."""

    def room(self) -> int:
        """Return how many more requests can be sent now."""
        ...

    def send(
        self, head: RequestHead, body: bytes, signature: Signature | None, deadline: Deadline
    ) -> "asyncio.Future[Answer]":
        """Send a request, and return the future of its answer or DeliveryFailed."""
        ...

    def abandon(self, exchange: "asyncio.Future[Answer]") -> None:
        """Discard the answer of a cancelled request."""

    def expire(self, now_s: float) -> None:
        """Fail the requests that are past their deadline."""

    def retire(self) -> None:
        """Take no more requests, and close when none is pending."""

    def abort(self) -> None:
        """Close immediately; pending requests fail."""

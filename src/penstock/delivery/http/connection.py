"""What a connection and the pool it belongs to know of each other."""

import asyncio
from typing import Protocol

from penstock.delivery.http.answer import Answer
from penstock.delivery.http.request import RequestHead
from penstock.domain.signing import Signature
from penstock.edge.outbox import Outbox

NEVER = float("inf")


class Home(Protocol):
    """The pool a connection belongs to, told what it needs to know."""

    outbox: Outbox

    def made(self, connection: "Connection") -> None:
        """The connection is open."""

    def freed(self, connection: "Connection") -> None:
        """The connection can take a request again, or more than before."""

    def lost(self, connection: "Connection") -> None:
        """The connection is closed."""


class Connection(Protocol):
    """A connection to an endpoint's host."""

    is_shared: bool  # whether several requests can be under way at once
    opened_s: float
    idle_since_s: float  # NEVER while a request is under way

    async def ready(self) -> None:
        """Wait until requests can be sent; ConnectFailed if that does not come about."""

    def room(self) -> int:
        """How many more requests can be sent now."""
        ...

    def send(
        self, head: RequestHead, body: bytes, signature: Signature | None, deadline_s: float
    ) -> "asyncio.Future[Answer]":
        """Send a request; its answer comes, or a DeliveryFailed."""
        ...

    def abandon(self, exchange: "asyncio.Future[Answer]") -> None:
        """Nobody waits for the answer any more."""

    def expire(self, now_s: float) -> None:
        """Fail what is past its deadline."""

    def retire(self) -> None:
        """Take no more requests, and close when none is under way."""

    def abort(self) -> None:
        """Hang up at once; requests under way fail."""

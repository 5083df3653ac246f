"""The caller of a request: its rights, its connection and the server's address as it sees it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from penstock.sqs.actions.contents import is_harmless
from penstock.sqs.names import Scope

ANONYMOUS: Mapping[str, str] = {"SenderId": "anonymous"}

T = TypeVar("T")


class Hop(msgspec.Struct, frozen=True):
    """The way of a request that another node passed on."""

    shard: str
    woken: bool = False
    """Whether it repeats a receive that has waited on the other node, and is charged already."""


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What another node must know about a caller."""

    host: bytes
    admin: bool
    notes: dict[str, str]
    scope: tuple[str, str] | None = None
    secure: bool = False


class CallerGone(Exception):
    """The client closed the connection while it waited."""


class SqsCaller:
    """Who sent a request; `host` is the server's address as this client wrote it."""

    __slots__ = ("_host", "_json", "admin", "hop", "hung_up", "notes", "scope", "secure")

    def __init__(
        self,
        host: bytes,
        hung_up: Callable[[], Awaitable[Any]] | None = None,
        *,
        admin: bool = True,
        notes: Mapping[str, str] = ANONYMOUS,
        json: bytes | None = None,
        scope: Scope | None = None,
        secure: bool = False,
        hop: Hop | None = None,
    ) -> None:
        self._host = host
        self.hop = hop
        """How the request came here from another node; None if the client itself sent it."""
        self.secure = secure
        """Whether the client uses TLS, as far as we or a trusted proxy know."""
        self._json = json
        self.hung_up = hung_up
        """Returns when the client has disconnected."""
        self.admin = admin
        self.notes = notes
        """Attributes added to every message of this caller."""
        self.scope = scope
        """The region and account of the credentials; None if the request has none, or if they do not matter."""

    @property
    def json(self) -> bytes | None:
        """The body of the request in the JSON protocol; None in the other one."""
        return self._json

    @property
    def host(self) -> bytes:
        """The server's address as the client wrote it; empty if it did not."""
        return self._host

    @property
    def is_harmless(self) -> bool:
        """Return whether no text of the request can have a character that SQS does not allow."""
        return self._json is not None and is_harmless(self._json)

    @property
    def base_url(self) -> str:
        """Return the beginning of queue URLs for this client."""
        return f"http{'s' if self.secure else ''}://{self._host.decode('latin-1') or 'localhost'}"

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work; if the client disconnects first, cancel the work and raise CallerGone."""
        if self.hung_up is None:
            return await work
        working = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(self.hung_up())
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise CallerGone
        finally:
            working.cancel()
            watching.cancel()

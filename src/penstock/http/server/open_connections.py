"""What all connections of a server share: the app, their number, the clock of the Date header, collected writes."""

import asyncio
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol

from penstock.domain.limits import MIB
from penstock.http.server.asgi import App, BodyLimit, TakeOn, leave
from penstock.http.server.server_answer import STATUS_LINES

MAX_CONNECTIONS = 10_000
MAX_CONNECTIONS_OF_PEER = 2_500
MAX_BODY_BYTES = 64 * MIB


class OpenConnection(Protocol):
    """A connection as the server sees it."""

    def expire(self, now_s: float) -> None:
        """Close if the client has been idle or slow for too long."""

    def close_when_idle(self) -> None:
        """Close now, or after the current answer."""

    def abort(self) -> None:
        """Close immediately."""


class OpenConnections:
    """What all connections of a server share."""

    def __init__(self, app: App, now_s: Callable[[], float]) -> None:
        self.app = app
        self.take_on: TakeOn = getattr(app, "take_on", leave)
        self.is_direct = hasattr(app, "take_on")
        self.body_limit: BodyLimit = getattr(app, "body_limit", lambda _: MAX_BODY_BYTES)
        self.open: set[OpenConnection] = set()
        self.stopping = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.unanswered = 0
        """Requests that are being answered, with or without a task."""
        self._peers: Counter[str] = Counter()
        self._all_answered: asyncio.Future[None] | None = None
        self._now_s = now_s
        self._date_s = 0
        self._date = b""
        self._outbox: list[tuple[asyncio.Transport, bytes]] = []

    def admit(self, connection: OpenConnection, peer: str) -> bool:
        """Record a new connection; return False if there are too many, in all or from this peer."""
        if len(self.open) >= MAX_CONNECTIONS or self._peers[peer] >= MAX_CONNECTIONS_OF_PEER:
            return False
        self.open.add(connection)
        self._peers[peer] += 1
        return True

    def release(self, connection: OpenConnection, peer: str) -> None:
        """Record that a connection has ended."""
        if connection not in self.open:
            return
        self.open.discard(connection)
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def write_soon(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write at the end of this iteration of the loop, together with the writes of others.

        The first write to a sleeping client wakes it, which costs more than the write; of several writes in a row only
        the first pays for it.
        """
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outbox.append((transport, data))

    def flush(self) -> None:
        """Write everything that was collected."""
        outbox, self._outbox = self._outbox, []
        for transport, data in outbox:
            if not transport.is_closing():
                transport.write(data)

    def head_start(self, status: int) -> bytes:
        """Return status line and Date header; the latter is formatted once a second."""
        now_s = int(self._now_s())
        if now_s != self._date_s:
            self._date_s = now_s
            self._date = f"date: {formatdate(now_s, usegmt=True)}\r\n".encode()
        return STATUS_LINES[status] + self._date

    def answered(self) -> None:
        """Note that one request fewer is being answered."""
        self.unanswered -= 1
        if self._all_answered is not None and not self.unanswered and not self._all_answered.done():
            self._all_answered.set_result(None)

    def expire(self, now_s: float) -> None:
        """Close the connections of clients that have been idle or slow for too long."""
        for connection in list(self.open):
            connection.expire(now_s)

    async def finish(self, within_s: float) -> None:
        """Wait for the requests in progress, for a limited time."""
        if self.unanswered:
            self._all_answered = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_answered], timeout=within_s)
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=within_s)

    def abandon(self) -> None:
        """Give up the requests in progress."""
        for task in self.tasks:
            task.cancel()
        for connection in list(self.open):
            connection.abort()
        if self._all_answered is not None and not self._all_answered.done():
            self._all_answered.set_result(None)

"""The connections to one origin: reused between requests, opened when none is free, up to a limit.

If the origin may use HTTP/2, only one connection is opened at a time, as the waiting requests can probably share it.
"""

import asyncio
from collections import deque

from penstock.delivery.errors import AnswerTimedOut, ConnectFailed, EgressRefused
from penstock.delivery.http.connection import Connection, Deadline
from penstock.delivery.http.dialer import Dialer
from penstock.delivery.http.request import Origin
from penstock.delivery.http.settings import HttpClientSettings
from penstock.edge.outbox import Outbox
from penstock.ops.config import HttpVersion


class Connections:
    """Provides connections that can take a request."""

    def __init__(self, origin: Origin, dialer: Dialer, settings: HttpClientSettings, outbox: Outbox) -> None:
        self.outbox = outbox
        self._origin = origin
        self._dialer = dialer
        self._settings = settings
        self._open: set[Connection] = set()
        # The last used is taken first, so that the others become idle and expire; some may be closed by now.
        self._idle: list[Connection] = []
        self._shared: list[Connection] = []
        self._dialing = 0
        self._retiring = False
        self._one_at_a_time = origin.secure and settings.http_version is HttpVersion.HTTP_2
        # Each waiter gets a connection to try, or None if it should check whether it may open a new one.
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()

    @property
    def is_unused(self) -> bool:
        """Whether it has no connections and no waiters."""
        return not self._open and not self._dialing and not self._waiting

    def take(self) -> Connection | None:
        """Return an open connection that can take a request now."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.room():
                return connection
        for connection in self._shared:
            if connection.room() > 0:
                return connection
        return None

    async def open(self, deadline: Deadline) -> Connection:
        """Return a new connection, or one that becomes free while the limit is reached."""
        try:
            async with asyncio.timeout_at(deadline.at_s):
                while not self._may_dial():
                    connection = await self._wait_for_turn()
                    if connection is not None and connection.room() > 0:
                        return connection
                return await self._dial()
        except TimeoutError as error:
            raise AnswerTimedOut(deadline.after_s) from error

    def opened(self, connection: Connection) -> None:
        """Record an open connection."""
        self._open.add(connection)
        if connection.is_shared:
            self._shared.append(connection)

    def freed(self, connection: Connection) -> None:
        """Record that a connection can take a request again, or more than before."""
        if not self._waiting and not connection.is_shared:
            self._idle.append(connection)
            return
        room = connection.room()
        while room > 0 and self._wake(connection):
            room -= 1
        if room and not connection.is_shared:
            self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        """Record a closed connection."""
        self._open.discard(connection)
        if connection.is_shared:
            self._shared.remove(connection)
        self._wake(None)

    def sweep(self, now_s: float) -> None:
        """Fail requests past their deadline; close connections that are idle for too long, or too old."""
        for connection in list(self._open):
            connection.expire(now_s)
            idle_s, age_s = now_s - connection.idle_since_s, now_s - connection.opened_s
            if self._retiring or idle_s >= self._settings.idle_s or age_s >= self._settings.max_age_s:
                connection.retire()
        self._idle = [connection for connection in self._idle if connection.room()]

    def retire(self) -> None:
        """Close idle connections now, the others when their answers are complete, and those being opened soon after."""
        self._retiring = True
        for connection in list(self._open):
            connection.retire()

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self._open):
            connection.abort()

    def _may_dial(self) -> bool:
        if self._one_at_a_time and self._dialing:
            return False
        return len(self._open) + self._dialing < self._settings.max_connections

    async def _dial(self) -> Connection:
        self._dialing += 1
        try:
            connection = await self._dialer.dial(self._origin, self)
        except BaseException as error:
            self._dialing -= 1
            if isinstance(error, ConnectFailed | EgressRefused):
                self._fail_waiting(error)
            self._wake(None)
            raise
        self._dialing -= 1
        self._share(connection)
        return connection

    def _share(self, connection: Connection) -> None:
        """Let the requests that waited for the first connection share it, or open their own."""
        if connection.is_shared:
            self.freed(connection)
            self._wake(None)
        elif self._one_at_a_time:
            self._one_at_a_time = False
            while self._wake(None):
                pass

    def _fail_waiting(self, error: ConnectFailed | EgressRefused) -> None:
        """Fail the requests that waited for this connection, as each would get the same error."""
        while self._one_at_a_time and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(error)

    async def _wait_for_turn(self) -> Connection | None:
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on(turn.result())
            raise

    def _pass_on(self, connection: Connection | None) -> None:
        if connection is None:
            self._wake(None)
        else:
            self.freed(connection)

    def _wake(self, connection: Connection | None) -> bool:
        """Wake the request that has waited longest; return False if none waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

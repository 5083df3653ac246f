"""One HTTP/1.1 connection serving an ASGI app: parsed by httptools, each answer written in one piece.

A general server writes head and body by two system calls and runs more code per request than ours do in all; here a
request costs a task and one write. Requests on a connection are answered in order; more that arrive meanwhile wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import httptools

from penstock.telemetry.asgi import App, Message, Scope

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_PIPELINED = 16

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Connections:
    """What all connections of a server share."""

    def __init__(self, app: App, now_s: Callable[[], float]) -> None:
        self.app = app
        self.open: set[HttpConnection] = set()
        self.stopping = False
        self.tasks: set[asyncio.Task[None]] = set()
        self._now_s = now_s
        self._date_s = 0
        self._date = b""
        self._outbox: list[tuple[asyncio.Transport, bytes]] = []

    def write_soon(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write at the end of this round of the loop, together with what others have to write.

        The first write to a client that sleeps wakes it, which costs more than the write; of writes in a row only the
        first one pays.
        """
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outbox.append((transport, data))

    def flush(self) -> None:
        """Write what has gathered."""
        outbox, self._outbox = self._outbox, []
        for transport, data in outbox:
            if not transport.is_closing():
                transport.write(data)

    def date_line(self) -> bytes:
        """The Date header, made once a second."""
        now_s = int(self._now_s())
        if now_s != self._date_s:
            self._date_s = now_s
            self._date = f"date: {formatdate(now_s, usegmt=True)}\r\n".encode()
        return self._date


class _Request:
    """A request that has arrived whole."""

    __slots__ = ("body", "keep_alive", "scope")

    def __init__(self, scope: Scope, body: bytes, keep_alive: bool) -> None:
        self.scope = scope
        self.body = body
        self.keep_alive = keep_alive


class HttpConnection(asyncio.Protocol):
    """Reads requests, hands them to the app one after another, writes its answers."""

    def __init__(self, shared: Connections) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._waiting: deque[_Request] = deque()
        self._answering: _Answer | None = None
        self._writable: asyncio.Future[None] | None = None
        self.active_s = self._loop.time()

    # From the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = cast("asyncio.Transport", transport)
        self._shared.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._shared.open.discard(self)
        self._waiting.clear()
        self._resume()
        if self._answering is not None:
            self._answering.hang_up()

    def eof_received(self) -> bool:
        """The client sends no more; close once everything is answered."""
        if self._answering is None:
            return False
        self._answering.keep_alive = False
        self._answering.hang_up()
        return True

    def data_received(self, data: bytes) -> None:
        """Some bytes of requests."""
        self.active_s = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # A client may ask for another protocol; it gets its answer in this one, and nothing after that.
            if self._answering is not None:
                self._answering.keep_alive = False
        except httptools.HttpParserError as error:
            refusal = error.__context__
            self._refuse(refusal.status if isinstance(refusal, _Refusal) else HTTPStatus.BAD_REQUEST)

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._resume()

    # From the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._headers = []
        self._head_bytes = 0
        self._body = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.append((name.lower(), value))
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if any(name == b"expect" and value.lower() == b"100-continue" for name, value in self._headers):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def on_message_complete(self) -> None:
        """A request is whole."""
        parser = self._parser
        path, _, query = self._url.partition(b"?")
        version = parser.get_http_version()
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": version,
            "scheme": "http",
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path.decode("latin-1")) if b"%" in path else path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
        }
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        request = _Request(scope, body, parser.should_keep_alive() and version != "1.0")
        if self._answering is None:
            self._answer(request)
        else:
            self._waiting.append(request)
            if len(self._waiting) >= MAX_PIPELINED:
                self._transport.pause_reading()

    # To the client

    def write(self, data: bytes) -> None:
        """Send bytes of an answer."""
        self._shared.write_soon(self._transport, data)

    async def drained(self) -> None:
        """Wait until the client has read enough for more to be written."""
        if self._writable is not None:
            await self._writable

    def answered(self, keep_alive: bool) -> None:
        """An answer is whole: go on with the next request, or close."""
        self._answering = None
        self.active_s = self._loop.time()
        if not keep_alive or self._shared.stopping:
            self._close()
        elif self._waiting:
            if len(self._waiting) == MAX_PIPELINED:
                self._transport.resume_reading()
            self._answer(self._waiting.popleft())

    def close_when_idle(self) -> None:
        """Close now, or after the answer under way."""
        if self._answering is None:
            self._close()

    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self._answering is None

    def abort(self) -> None:
        """Hang up at once."""
        self._transport.abort()

    def _answer(self, request: _Request) -> None:
        self._answering = _Answer(self, self._shared, request)
        task = self._loop.create_task(self._answering.run())
        self._shared.tasks.add(task)
        task.add_done_callback(self._shared.tasks.discard)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer a request that cannot be read, and close: what follows on the connection cannot be trusted."""
        if self._answering is None:
            self.write(_STATUS_LINES[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self._close()

    def _close(self) -> None:
        self._shared.flush()
        self._transport.close()

    def _count_head(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _resume(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)


class _Refusal(Exception):
    """Raised inside the parser to stop reading a request."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class _Answer:
    """One request and the answer the app gives to it."""

    __slots__ = ("_chunked", "_connection", "_gone", "_head", "_read", "_request", "_shared", "_state", "keep_alive")

    def __init__(self, connection: HttpConnection, shared: Connections, request: _Request) -> None:
        self._connection = connection
        self._shared = shared
        self._request = request
        self._read = False
        self._gone: asyncio.Future[None] | None = None
        self._head = b""
        self._state = "new"
        self._chunked = False
        self.keep_alive = request.keep_alive

    async def run(self) -> None:
        """Let the app answer."""
        try:
            await self._shared.app(self._request.scope, self.receive, self.send)
        except Exception:
            log.exception("a request failed in a way the app does not explain")
        if self._state == "done":
            return
        if self._state != "streaming":
            self._connection.write(
                _STATUS_LINES[500] + self._shared.date_line() + b"content-length: 0\r\nconnection: close\r\n\r\n"
            )
        self._connection.answered(keep_alive=False)

    async def receive(self) -> Message:
        """The body, once; then the client's going."""
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
        await self._gone
        return {"type": "http.disconnect"}

    def hang_up(self) -> None:
        """The client has gone."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
        if not self._gone.done():
            self._gone.set_result(None)

    async def send(self, message: Message) -> None:
        """A part of the answer; head and body go out together when the body is whole."""
        if message["type"] == "http.response.start":
            self._state = "started"
            self._head = self._head_of(message)
            return
        body: bytes = message.get("body", b"")
        connection = self._connection
        if message.get("more_body", False):
            await self._send_piece(body)
            return
        if self._state == "streaming":
            connection.write((_chunk(body) + b"0\r\n\r\n") if self._chunked else body)
        else:
            connection.write(self._head + body if not self._chunked else self._whole(body))
        self._state = "done"
        await connection.drained()
        connection.answered(self.keep_alive)

    async def _send_piece(self, body: bytes) -> None:
        piece = _chunk(body) if self._chunked else body
        if self._state != "streaming":
            self._state = "streaming"
            transfer = b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b""
            self._connection.write(self._head + transfer + piece)
        else:
            self._connection.write(piece)
        await self._connection.drained()

    def _whole(self, body: bytes) -> bytes:
        """An answer without a length of its own that came in one piece."""
        return self._head + b"content-length: %d\r\n\r\n" % len(body) + body

    def _head_of(self, message: Message) -> bytes:
        """The head; without its end while it is not known how the length will be told."""
        parts = [_STATUS_LINES[message["status"]], self._shared.date_line()]
        self._chunked = True
        lines = 2
        for name, value in message.get("headers", ()):
            if name == b"content-length":
                self._chunked = False
            parts += (name, b": ", value, b"\r\n")
            lines += 1
        if not self.keep_alive or self._shared.stopping:
            parts.append(b"connection: close\r\n")
            lines += 1
        head = b"".join(parts)
        if head.count(b"\n") != lines or head.count(b"\r") != lines:
            raise ValueError("a header may not hold a line break")
        return head if self._chunked else head + b"\r\n"


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body) if body else b""

"""An HTTP/1.1 connection: parsed by httptools, answered directly or through ASGI, each answer written at once.

A general-purpose server writes head and body by two system calls and runs more code per request than our apps do.
Requests on a connection are answered in order; those that arrive in the meantime wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, cast

import httptools

from penstock.http.server.asgi import App, TakeOn, leave
from penstock.http.server.server_answer import STATUS_LINES, ServerAnswer

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_PIPELINED = 16


class OpenConnections:
    """What all connections of a server share."""

    def __init__(self, app: App, now_s: Callable[[], float]) -> None:
        self.app = app
        self.take_on: TakeOn = getattr(app, "take_on", leave)
        self.open: set[HttpConnection] = set()
        self.stopping = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.unanswered = 0
        """Requests that are being answered, with or without a task."""
        self._all_answered: asyncio.Future[None] | None = None
        self._now_s = now_s
        self._date_s = 0
        self._date = b""
        self._outbox: list[tuple[asyncio.Transport, bytes]] = []

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


class HttpConnection(asyncio.Protocol):
    """Reads requests, passes them to the app one after another and writes its answers."""

    def __init__(self, shared: OpenConnections) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._expects_continue = False
        self._waiting: deque[ServerAnswer] = deque()
        self._answering: ServerAnswer | None = None
        self._beginning = False
        self._paused = False
        self._when_drained: Callable[[], None] | None = None
        self.active_s = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with a new client."""
        self._transport = cast("asyncio.Transport", transport)
        self._shared.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the client has disconnected."""
        self._shared.open.discard(self)
        self._waiting.clear()
        self._resume()
        if self._answering is not None:
            self._answering.hang_up()

    def eof_received(self) -> bool:
        """Note that the client sends no more; close once everything is answered."""
        if self._answering is None:
            return False
        self._answering.keep_alive = False
        self._answering.hang_up()
        return True

    def data_received(self, data: bytes) -> None:
        """Parse bytes of requests."""
        self.active_s = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # A client may ask for another protocol; it gets an answer in this one, and nothing after that.
            self._waiting[-1].keep_alive = False
            self._answer_next()
        except httptools.HttpParserError as error:
            self._answer_next()
            refusal = error.__context__
            self._refuse(refusal.status if isinstance(refusal, _Refusal) else HTTPStatus.BAD_REQUEST)
        else:
            self._answer_next()

    def pause_writing(self) -> None:
        """Stop writing: the client reads more slowly than we write."""
        self._paused = True

    def resume_writing(self) -> None:
        """Write again: the client has caught up."""
        self._resume()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._headers = []
        self._head_bytes = 0
        self._body = []
        self._body_bytes = 0
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        """Add a piece of the target."""
        self._url += url
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        name = name.lower()
        self._headers.append((name, value))
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """Note that the head is complete."""
        if self._expects_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body."""
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def on_message_complete(self) -> None:
        """Queue the complete request."""
        parser = self._parser
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        version = parser.get_http_version()
        keep_alive = parser.should_keep_alive() and version != "1.0"
        method = parser.get_method().decode("ascii")
        self._waiting.append(ServerAnswer(self, method, self._url, self._headers, body, version, keep_alive=keep_alive))
        if len(self._waiting) >= MAX_PIPELINED:
            self._transport.pause_reading()

    def write(self, data: bytes) -> None:
        """Send bytes of an answer."""
        self._shared.write_soon(self._transport, data)

    def head_start(self, status: int) -> bytes:
        """Return the beginning of every answer."""
        return self._shared.head_start(status)

    def is_last(self) -> bool:
        """Return whether the connection closes after this answer, whatever the client wants."""
        return self._shared.stopping

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on the answer in a task."""
        task = self._loop.create_task(work)
        self._shared.tasks.add(task)
        task.add_done_callback(self._shared.tasks.discard)

    def when_drained(self, then: Callable[[], None]) -> None:
        """Call `then` once the client has read enough for more to be written, usually immediately."""
        if self._paused:
            self._when_drained = then
        else:
            then()

    def answered(self) -> None:
        """Continue with the next request, or close."""
        answer, self._answering = self._answering, None
        assert answer is not None
        self._shared.answered()
        self.active_s = self._loop.time()
        if not answer.keep_alive or self._shared.stopping:
            self._close()
        elif self._waiting:
            self._answer_next()

    def close_when_idle(self) -> None:
        """Close now, or after the current answer."""
        if self._answering is None:
            self._close()

    def is_idle(self) -> bool:
        """Return whether no request is being answered."""
        return self._answering is None

    def abort(self) -> None:
        """Close the connection immediately."""
        self._transport.abort()

    def _answer_next(self) -> None:
        """Start answering the complete requests, one after another, until one has to wait."""
        if self._beginning:
            return  # answered immediately; the loop below continues
        self._beginning = True
        while self._waiting and self._answering is None:
            if len(self._waiting) == MAX_PIPELINED:
                self._transport.resume_reading()
            self._answering = self._waiting.popleft()
            self._shared.unanswered += 1
            self._begin(self._answering)
        self._beginning = False

    def _begin(self, answer: ServerAnswer) -> None:
        try:
            taken_on = self._shared.take_on(answer)
        except Exception:
            log.exception("a request failed, and the app did not answer it")
            answer.fail()
        else:
            if not taken_on:
                self.run(answer.by_asgi(self._shared.app))

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer a request that cannot be parsed, and close: what follows on the connection cannot be trusted."""
        if self._answering is None:
            self.write(STATUS_LINES[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self._close()

    def _close(self) -> None:
        self._waiting.clear()
        self._shared.flush()
        self._transport.close()

    def _resume(self) -> None:
        self._paused = False
        then, self._when_drained = self._when_drained, None
        if then is not None:
            then()


class _Refusal(Exception):
    """Raised inside the parser to stop reading a request."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status

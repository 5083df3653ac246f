"""An HTTP/1.1 connection: parsed by httptools, answered directly or through ASGI, each answer written at once.

A general-purpose server writes head and body by two system calls and runs more code per request than our apps do.
Requests on a connection are answered in order; those that arrive in the meantime wait.

A client may be hostile. The bytes of a head, and those between two pieces of a body, are counted before the parser sees
them, as it joins the pieces of a header whenever one arrives. Head and body must arrive in time. A body of more than
64 KiB is read only as the app asks for it, or as far as a direct app allows it for this request.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, cast

import httptools

from penstock.domain.limits import KIB, MIB
from penstock.edge.quick_ack import acknowledge_now
from penstock.http.server.open_connections import OpenConnections
from penstock.http.server.request_body import RequestBody
from penstock.http.server.server_answer import STATUS_LINES, ServerAnswer

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * KIB
MAX_HEADERS = 200
SHORT_BODY_BYTES = 64 * KIB
MAX_PIPELINED = 16
IDLE_S = 75.0
HEAD_S = 30.0
BODY_S = 120.0
# How long a client may read nothing of an answer that waits for it.
ANSWER_S = 120.0
# A connection that was closed while its client still sends would be reset, and the client might not see the answer.
LINGER_S = 5.0
LINGER_BYTES = 16 * MIB

_NEVER = float("inf")
_VERSIONS = frozenset({"1.0", "1.1"})
_WATCHED_LENGTHS = frozenset(map(len, ("host", "expect", "content-length")))

# What is received next. Plain numbers, as they are compared for every header.
_REQUEST = 0
_HEAD = 1
_BODY = 2


class HttpConnection(asyncio.Protocol):
    """Reads requests, passes them to the app one after another and writes its answers."""

    def __init__(self, shared: OpenConnections) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self.peer = ""
        self.secure = False
        self._phase = _REQUEST
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._version = ""
        self._hosts = 0
        self._length_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._max_body_bytes = SHORT_BODY_BYTES
        self._streamed: RequestBody | None = None
        self._expects_continue = False
        # Received since the parser last reported the end of a head or a part of a body.
        self._unreported_bytes = 0
        self._waiting: deque[ServerAnswer] = deque()
        self._answering: ServerAnswer | None = None
        self._beginning = False
        self._paused = False
        self._paused_since_s = _NEVER
        self._when_drained: Callable[[], None] | None = None
        self._lingering_bytes: int | None = None
        self._idle_since_s = self._loop.time()
        self._deadline_s = _NEVER

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with a new client, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.secure = transport.get_extra_info("sslcontext") is not None
        if not self._shared.admit(self, self.peer):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the client has disconnected."""
        self._shared.release(self, self.peer)
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
        # With TLS, a connection cannot be closed in one direction only.
        return not self.secure

    def data_received(self, data: bytes) -> None:
        """Parse bytes of requests."""
        if self._lingering_bytes is not None:
            self._drop(data)
            return
        self._unreported_bytes += len(data)
        try:
            if self._unreported_bytes >= MAX_HEAD_BYTES:
                self._feed_in_pieces(data)
            else:
                self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # A client may ask for another protocol; it gets an answer in this one, and nothing after that.
            self._waiting[-1].keep_alive = False
            self._lingering_bytes = 0
            self._answer_next()
        except (httptools.HttpParserError, _Refusal) as error:
            cause = error.__context__ if isinstance(error, httptools.HttpParserError) else error
            if isinstance(cause, _LeftToApp):
                self._lingering_bytes = 0
                self._answer_next()
                return
            self._answer_next()
            self._refuse(cause.status if isinstance(cause, _Refusal) else HTTPStatus.BAD_REQUEST)
        else:
            self._answer_next()
            if self._phase:
                self._await_rest()

    def pause_writing(self) -> None:
        """Stop writing: the client reads more slowly than we write."""
        self._paused = True
        self._paused_since_s = self._loop.time()

    def resume_writing(self) -> None:
        """Write again: the client has caught up."""
        self._resume()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._phase = _HEAD
        self._deadline_s = _NEVER
        self._url = b""
        self._headers = []
        self._hosts = 0
        self._length_bytes = 0
        self._body = []
        self._body_bytes = 0
        self._max_body_bytes = SHORT_BODY_BYTES
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        """Add a piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; a trailer is dropped, as it would pass checks that were made of the head."""
        if self._phase == _BODY:
            return
        name = name.lower()
        self._headers.append((name, value))
        if len(name) in _WATCHED_LENGTHS:
            if name == b"host":
                self._hosts += 1
            elif name == b"content-length":
                self._length_bytes = int(value)
            elif name == b"expect":
                self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """Check the head, and ask for the body if the client waits for that."""
        self._phase = _BODY
        self._deadline_s = _NEVER
        self._unreported_bytes = 0
        version = self._version = self._parser.get_http_version()
        if self._hosts != 1 or version != "1.1" or len(self._headers) > MAX_HEADERS:
            self._check_head(version)
        if self._length_bytes > SHORT_BODY_BYTES:
            self._lengthen(self._length_bytes)
        if self._expects_continue and self._streamed is None and self._answering is None and not self._waiting:
            self._ask_for_body()

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body."""
        self._unreported_bytes = 0
        if self._streamed is not None:
            self._streamed.add(body)
            self._control_reading()
            return
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body_bytes:
            self._lengthen(self._body_bytes)

    def on_message_complete(self) -> None:
        """Queue the complete request."""
        self._phase = _REQUEST
        self._deadline_s = _NEVER
        self._unreported_bytes = 0
        if self._streamed is not None:
            self._streamed.end()
            self._streamed = None
            self._control_reading()
            return
        self._queue(self._body[0] if len(self._body) == 1 else b"".join(self._body), None)

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
        self._idle_since_s = self._loop.time()
        if not answer.keep_alive or self._shared.stopping:
            self._close(still_sending=bool(self._phase))
        elif self._waiting:
            self._answer_next()
        elif self._expects_continue and self._phase == _BODY and self._streamed is None:
            self._ask_for_body()

    def close_when_idle(self) -> None:
        """Close now, or after the current answer."""
        if self._answering is None:
            self._close(still_sending=False)

    def expire(self, now_s: float) -> None:
        """Close if the client has been idle or slow for too long."""
        if now_s >= self._deadline_s and not self._is_full:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        elif now_s - self._paused_since_s > ANSWER_S or (
            self._answering is None and not self._phase and now_s - self._idle_since_s > IDLE_S
        ):
            self.abort()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._transport.abort()

    def _answer_next(self) -> None:
        """Start answering the complete requests, one after another, until one has to wait."""
        if self._beginning:
            return  # answered immediately; the loop below continues
        self._beginning = True
        while self._waiting and self._answering is None:
            was_full = len(self._waiting) == MAX_PIPELINED
            self._answering = self._waiting.popleft()
            if was_full:
                self._control_reading()
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
        self._close(still_sending=self._answering is None)

    def _check_head(self, version: str) -> None:
        """Refuse a head that is not of HTTP/1.1 or 1.0, and one whose Host could be read in two ways."""
        hosts_allowed = (0, 1) if version == "1.0" else (1,)
        if version not in _VERSIONS or self._hosts not in hosts_allowed or len(self._headers) > MAX_HEADERS:
            raise _Refusal(HTTPStatus.BAD_REQUEST)
        if version == "1.0":
            self._expects_continue = False

    def _queue(self, body: bytes, streamed: RequestBody | None) -> None:
        version = self._version
        keep_alive = self._parser.should_keep_alive() and version != "1.0"
        method = self._parser.get_method().decode("ascii")
        self._waiting.append(
            ServerAnswer(
                self, method, self._url, self._headers, body, version, keep_alive=keep_alive, streamed=streamed
            )
        )
        if len(self._waiting) >= MAX_PIPELINED:
            self._control_reading()

    def _lengthen(self, size_bytes: int) -> None:
        """Read a long body: as the app asks for it, or as far as a direct app allows it."""
        if self._shared.is_direct:
            self._max_body_bytes = self._shared.body_limit(self._headers)
            if size_bytes > self._max_body_bytes:
                self._queue(b"", None)
                self._waiting[-1].refuse_body()
                raise _LeftToApp
            return
        streamed = self._streamed = RequestBody(self._want_body)
        for piece in self._body:
            streamed.add(piece)
        self._body = []
        self._queue(b"", streamed)

    def _want_body(self) -> None:
        """Receive more of the body of the current request."""
        if self._streamed is not None and self._expects_continue:
            self._ask_for_body()
        self._loop.call_soon(self._control_reading)  # after what is there was taken

    def _ask_for_body(self) -> None:
        self._expects_continue = False
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    @property
    def _is_full(self) -> bool:
        """Whether enough waits to be answered, so that the client has to wait too."""
        return len(self._waiting) >= MAX_PIPELINED or (self._streamed is not None and self._streamed.is_full)

    def _control_reading(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_full and self._lingering_bytes is None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _feed_in_pieces(self, data: bytes) -> None:
        """Parse no more than a head may have before it is checked that a head or a part of a body has ended."""
        self._unreported_bytes -= len(data)
        at = 0
        while at < len(data):
            piece = data[at : at + MAX_HEAD_BYTES - self._unreported_bytes]
            self._unreported_bytes += len(piece)
            self._parser.feed_data(piece)
            if self._unreported_bytes >= MAX_HEAD_BYTES:
                raise _Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            at += len(piece)

    def _await_rest(self) -> None:
        """Let the client continue a request that is not complete, within a limited time."""
        acknowledge_now(self._transport)
        if self._deadline_s == _NEVER:
            self._deadline_s = self._loop.time() + (HEAD_S if self._phase == _HEAD else BODY_S)

    def _drop(self, data: bytes) -> None:
        assert self._lingering_bytes is not None
        self._lingering_bytes += len(data)
        if self._lingering_bytes > LINGER_BYTES:
            self._transport.abort()

    def _close(self, *, still_sending: bool) -> None:
        """Close; if the client is still sending, let it read the answer first."""
        self._waiting.clear()
        self._shared.flush()
        if still_sending and self._transport.can_write_eof() and not self._transport.is_closing():
            self._deadline_s = _NEVER
            self._lingering_bytes = 0
            self._transport.write_eof()
            self._control_reading()
            self._loop.call_later(LINGER_S, self._transport.abort)
        else:
            self._transport.close()

    def _resume(self) -> None:
        self._paused = False
        self._paused_since_s = _NEVER
        then, self._when_drained = self._when_drained, None
        if then is not None:
            then()


class _LeftToApp(Exception):
    """Raised inside the parser to stop reading a request that the app will refuse."""


class _Refusal(Exception):
    """Raised inside the parser to stop reading a request."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status

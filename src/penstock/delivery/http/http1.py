"""An HTTP/1.1 connection: one request at a time, answers parsed by httptools."""

import asyncio
from typing import cast

import httptools

from penstock.delivery.errors import AnswerTimedOut, ConnectionBroken, DeliveryFailed, StaleConnection
from penstock.delivery.http.answer import MAX_HEAD_BYTES, Answer, AnswerBody
from penstock.delivery.http.connection import NEVER, NO_DEADLINE, ConnectionOwner, Deadline
from penstock.delivery.http.request import RequestHead
from penstock.delivery.http.settings import HttpClientSettings
from penstock.domain.limits import KIB
from penstock.domain.signing import Signature
from penstock.edge.quick_ack import acknowledge_now

# Chunks of one byte are framed by five.
MAX_FRAMING = 2
# What is parsed in one turn of the loop: thousands of short chunks fit into what one read returns.
TURN_BYTES = 4 * KIB
BODY_TURN_BYTES = 64 * KIB

_WANTED_LENGTHS = frozenset(map(len, ("content-length", "transfer-encoding", "retry-after")))


class _Surplus(Exception):
    """Raised inside the parser when the endpoint sends more than one answer, which cannot be trusted."""


class Http1Connection(asyncio.Protocol):
    """Sends one request at a time, and returns the answer when it is complete."""

    is_shared = False

    def __init__(self, owner: ConnectionOwner, settings: HttpClientSettings) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: asyncio.Future[Answer] | None = None
        self._deadline = NO_DEADLINE
        self._reused = False
        self._retiring = False
        self.opened_s = self.idle_since_s = self._loop.time()
        self._body = AnswerBody(settings)
        self._unread = b""
        self._reset()

    def _reset(self) -> None:
        self._received_bytes = 0
        # Since the end of the head, or the last piece of the body: a head, trailers, extensions of a chunk.
        self._unreported_bytes = 0
        self._in_body = False
        self._complete = False
        self._status = 0
        self._keep_alive = False
        self._sized = False
        self._has_length = False
        self._retry_after: str | None = None

    async def ready(self) -> None:
        """Return immediately, as requests can be sent from the start."""

    def room(self) -> int:
        """Return 1 if a request can be sent now, else 0."""
        return int(self._exchange is None and not self._retiring and not self._transport.is_closing())

    def send(
        self, head: RequestHead, body: bytes, signature: Signature | None, deadline: Deadline
    ) -> "asyncio.Future[Answer]":
        """Send a request, and return the future of its answer or DeliveryFailed."""
        exchange: asyncio.Future[Answer] = self._loop.create_future()
        if self._transport.is_closing():
            exchange.set_exception(ConnectionBroken("the endpoint closed the connection immediately"))
            return exchange
        self._exchange = exchange
        self._deadline = deadline
        self.idle_since_s = NEVER
        self._owner.outbox.write(self._transport, head.http1(body, signature))
        return exchange

    def abandon(self, exchange: "asyncio.Future[Answer]") -> None:
        """Close the connection of a cancelled request, as its answer would come first."""
        if exchange is self._exchange:
            self.abort()

    def expire(self, now_s: float) -> None:
        """Fail a request that is past its deadline."""
        if now_s >= self._deadline.at_s:
            self._fail(AnswerTimedOut(self._deadline.after_s))

    def retire(self) -> None:
        """Take no more requests, and close when none is pending."""
        self._retiring = True
        if self._exchange is None:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately; a pending request fails."""
        self._fail(ConnectionBroken("the connection was closed by Penstock"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the open connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of an answer."""
        if self._exchange is None:
            self._transport.abort()
            return
        if self._unread:
            self._unread += data
        elif len(data) > self._turn_bytes:
            self._unread = data
            self._receive_some()
        else:
            self._receive(data)

    @property
    def _turn_bytes(self) -> int:
        return BODY_TURN_BYTES if self._in_body and self._has_length else TURN_BYTES

    def _receive_some(self) -> None:
        """Parse some of what was received, and the rest after others have had their turn."""
        most = self._turn_bytes
        piece, self._unread = self._unread[:most], self._unread[most:]
        if self._exchange is None or self._transport.is_closing():
            self._unread = b""
            return
        self._receive(piece)
        if self._transport.is_closing():
            self._unread = b""
        elif self._unread:
            self._transport.pause_reading()
            self._loop.call_soon(self._receive_some)
        else:
            self._transport.resume_reading()

    def _receive(self, data: bytes) -> None:
        self._received_bytes += len(data)
        self._unreported_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._complete:
                self._fail(ConnectionBroken(f"the answer is not HTTP/1.1: {error}"))
                return
            self._keep_alive = False
        if self._complete or self._body.is_too_long:
            if self._unread:
                self._keep_alive = False  # more came than the answer
            self._finish()
        elif self._unreported_bytes > MAX_HEAD_BYTES:
            self._fail(
                ConnectionBroken(f"the head or the trailers of the answer are longer than {MAX_HEAD_BYTES} bytes")
            )
        elif self._received_bytes > MAX_HEAD_BYTES + MAX_FRAMING * self._body.read_bytes:
            self._fail(ConnectionBroken("the answer has much more framing than body"))
        else:
            acknowledge_now(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Finish or fail the pending request, as the connection has ended."""
        unread, self._unread = self._unread, b""
        if unread and self._exchange is not None:
            self._receive(unread)
        if self._exchange is not None:
            if exc is None and self._in_body and not self._sized:
                self._finish()
            else:
                self._fail(self._loss(exc))
        self._owner.lost(self)

    def on_message_begin(self) -> None:
        """Reject a second answer."""
        if self._complete:
            raise _Surplus

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header."""
        # Lengths are checked first, as most of the headers are not needed.
        if len(name) not in _WANTED_LENGTHS:
            return
        match name.lower():
            case b"content-length":
                self._sized = self._has_length = True
            case b"transfer-encoding":
                self._sized = b"chunked" in value.lower()
            case b"retry-after":
                self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Read the status."""
        self._status = self._parser.get_status_code()
        self._in_body = self._status >= 200
        if self._in_body:
            self._unreported_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body."""
        self._unreported_bytes = 0
        self._body.add(body)

    def on_message_complete(self) -> None:
        """Record that the final answer is complete; earlier ones (1xx) are ignored."""
        if self._in_body:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()

    def _finish(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._deadline = NO_DEADLINE
        answer = Answer(self._status, self._retry_after, self._body.take())
        if exchange is not None and not exchange.done():
            exchange.set_result(answer)
        if not self._keep_alive or self._retiring:
            self._transport.abort()
            return
        self._reused = True
        self._reset()
        self.idle_since_s = self._loop.time()
        self._owner.freed(self)

    def _fail(self, error: DeliveryFailed) -> None:
        exchange, self._exchange = self._exchange, None
        self._deadline = NO_DEADLINE
        self._transport.abort()
        if exchange is not None and not exchange.done():
            exchange.set_exception(error)

    def _loss(self, exc: Exception | None) -> ConnectionBroken:
        reason = "the endpoint closed the connection" if exc is None else f"the connection broke: {exc}"
        if self._reused and not self._received_bytes:
            return StaleConnection(reason)
        return ConnectionBroken(f"{reason} before the answer was complete")

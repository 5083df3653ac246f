"""An HTTP/2 connection: many requests at once, framed by the h2 package."""

import asyncio
from typing import cast

import msgspec
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from penstock.delivery.errors import AnswerTimedOut, ConnectFailed, ConnectionBroken, DeliveryFailed, StaleConnection
from penstock.delivery.http.answer import MAX_HEAD_BYTES, Answer, AnswerBody
from penstock.delivery.http.connection import NEVER, ConnectionOwner, Deadline
from penstock.delivery.http.request import RequestHead, signature_headers
from penstock.delivery.http.settings import HttpClientSettings
from penstock.domain.limits import KIB
from penstock.domain.signing import Signature
from penstock.edge.quick_ack import acknowledge_now

# Limit on concurrent requests, even if the endpoint allows more.
MAX_STREAMS = 100
MAX_FRAME_BYTES = 16_384  # the minimum that every endpoint must allow, and our maximum
FRAME_HEADER_BYTES = 9
# How many frames an endpoint may send, beside one for every few bytes of a body.
FRAMES_PER_CONNECTION = 1000
FRAMES_PER_ANSWER = 100
BYTES_PER_FRAME = 256
MAX_TURN_BYTES = 64 * KIB
_DATA = 0x0
_GOAWAY = 0x7
_STREAM_ID_MASK = 0x7FFF_FFFF


class Goaway(msgspec.Struct, frozen=True):
    """The endpoint accepts no more streams; those after the last one were not processed."""

    last_stream_id: int
    error_code: int


class _Stream:
    """A request and its answer."""

    __slots__ = ("body", "deadline", "exchange", "retry_after", "status", "unsent")

    def __init__(
        self, exchange: "asyncio.Future[Answer]", unsent: bytes, deadline: Deadline, settings: HttpClientSettings
    ) -> None:
        self.exchange = exchange
        self.unsent = unsent
        self.deadline = deadline
        self.body = AnswerBody(settings)
        self.status = 0
        self.retry_after: str | None = None


class Http2Connection(asyncio.Protocol):
    """Sends requests as streams of one connection, and returns each answer when it is complete."""

    is_shared = True

    def __init__(self, owner: ConnectionOwner, settings: HttpClientSettings) -> None:
        self._owner = owner
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._frames = FrameFilter()
        self._unread = b""
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
        self._h2.local_settings = Settings(client=True, initial_values=_our_settings(settings))
        self._settled: asyncio.Future[None] = self._loop.create_future()
        self._streams: dict[int, _Stream] = {}
        self._retiring = False
        self.opened_s = self.idle_since_s = self._loop.time()

    async def ready(self) -> None:
        """Wait for the endpoint's settings, which limit the requests."""
        await self._settled

    def room(self) -> int:
        """Return how many more requests can be sent now."""
        if not self._settled.done() or self._retiring or self._transport.is_closing():
            return 0
        return min(MAX_STREAMS, self._h2.remote_settings.max_concurrent_streams) - len(self._streams)

    def send(
        self, head: RequestHead, body: bytes, signature: Signature | None, deadline: Deadline
    ) -> "asyncio.Future[Answer]":
        """Send a request, and return the future of its answer or DeliveryFailed."""
        exchange: asyncio.Future[Answer] = self._loop.create_future()
        if self.room() <= 0:
            exchange.set_exception(StaleConnection("the endpoint accepts no more requests on this connection"))
            return exchange
        stream_id = self._h2.get_next_available_stream_id()
        self._h2.send_headers(stream_id, _headers(head, body, signature), end_stream=not body)
        stream = self._streams[stream_id] = _Stream(exchange, body, deadline, self._settings)
        self._frames.allow(FRAMES_PER_ANSWER)
        self.idle_since_s = NEVER
        self._send_body(stream_id, stream)
        self._flush()
        return exchange

    def abandon(self, exchange: "asyncio.Future[Answer]") -> None:
        """Cancel the stream of a cancelled request."""
        for stream_id, stream in list(self._streams.items()):
            if stream.exchange is exchange:
                self._cancel(stream_id)

    def expire(self, now_s: float) -> None:
        """Fail the requests that are past their deadline."""
        for stream_id, stream in list(self._streams.items()):
            if now_s >= stream.deadline.at_s:
                self._cancel(stream_id)
                _fail(stream, AnswerTimedOut(stream.deadline.after_s))

    def retire(self) -> None:
        """Take no more requests, and close when none is pending."""
        self._retiring = True
        if not self._streams:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately; pending requests fail."""
        self._fail_all(ConnectionBroken("the connection was closed by Penstock"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start HTTP/2."""
        self._transport = cast("asyncio.Transport", transport)
        self._h2.initiate_connection()
        self._flush()
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of answers, some in each iteration of the loop, as frames can be made costly on purpose."""
        if self._unread:
            self._unread += data
            return
        self._receive(data[:MAX_TURN_BYTES])
        if len(data) > MAX_TURN_BYTES and not self._transport.is_closing():
            self._unread = data[MAX_TURN_BYTES:]
            self._transport.pause_reading()
            self._loop.call_soon(self._receive_unread)

    def _receive_unread(self) -> None:
        if self._transport.is_closing():
            return
        data, self._unread = self._unread, b""
        self._transport.resume_reading()
        self.data_received(data)

    def _receive(self, data: bytes) -> None:
        frames, goaway = self._frames.feed(data)
        if self._frames.is_flooded:
            self._fail_all(ConnectionBroken("the endpoint sends many more frames than its answers need"))
            return
        try:
            for event in self._h2.receive_data(frames) if frames else ():
                self._handle(event)
        except H2Error as error:
            self._fail_all(ConnectionBroken(f"the endpoint violates HTTP/2: {error}"))
            return
        if goaway is not None:
            self._go_away(goaway)
        self._flush()
        self._after_streams()
        if self._streams:
            acknowledge_now(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take what came before, and fail the pending requests."""
        unread, self._unread = self._unread, b""
        if unread:
            self._receive(unread)
        reason = "the endpoint closed the connection" if exc is None else f"the connection broke: {exc}"
        self._fail_all(ConnectionBroken(f"{reason} before the answer was complete"))
        self._owner.lost(self)

    def _handle(self, event: Event) -> None:
        match event:
            case ResponseReceived(stream_id=stream_id, headers=headers):
                if (stream := self._streams.get(stream_id)) is not None:
                    _take_head(stream, {str(name): str(value) for name, value in headers})
            case DataReceived():
                self._take_data(event)
            case StreamEnded(stream_id=stream_id):
                self._finish(stream_id)
            case StreamReset(stream_id=stream_id, error_code=code):
                self._take_reset(stream_id, code)
            case WindowUpdated() | RemoteSettingsChanged():
                if isinstance(event, RemoteSettingsChanged) and not self._settled.done():
                    self._settled.set_result(None)
                for stream_id, stream in list(self._streams.items()):
                    self._send_body(stream_id, stream)

    def _take_data(self, event: DataReceived) -> None:
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        stream.body.add(event.data)
        if stream.body.is_too_long:
            self._finish(event.stream_id)
            if event.stream_ended is None:
                self._h2.reset_stream(event.stream_id, ErrorCodes.CANCEL)

    def _take_reset(self, stream_id: int, code: ErrorCodes | int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        if code == ErrorCodes.REFUSED_STREAM:
            _fail(stream, StaleConnection("the endpoint refused the stream"))
        else:
            _fail(stream, ConnectionBroken(f"the endpoint reset the stream with the error {code!r}"))

    def _finish(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None and not stream.exchange.done():
            stream.exchange.set_result(Answer(stream.status, stream.retry_after, stream.body.take()))

    def _go_away(self, goaway: Goaway) -> None:
        self._retiring = True
        for stream_id, stream in list(self._streams.items()):
            if stream_id > goaway.last_stream_id:
                del self._streams[stream_id]
                _fail(stream, StaleConnection("the endpoint shut down without processing the request"))

    def _send_body(self, stream_id: int, stream: _Stream) -> None:
        """Send as much as the endpoint's flow control windows allow."""
        while stream.unsent:
            room = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
            if room <= 0:
                return
            piece, stream.unsent = stream.unsent[:room], stream.unsent[room:]
            self._h2.send_data(stream_id, piece, end_stream=not stream.unsent)

    def _cancel(self, stream_id: int) -> None:
        del self._streams[stream_id]
        self._h2.reset_stream(stream_id, ErrorCodes.CANCEL)
        self._flush()
        self._after_streams()

    def _after_streams(self) -> None:
        """Close, become idle, or take more requests, after streams have ended."""
        if not self._streams:
            if self._retiring:
                self._transport.close()
            elif self.idle_since_s == NEVER:
                self.idle_since_s = self._loop.time()
        self._owner.freed(self)

    def _fail_all(self, error: DeliveryFailed) -> None:
        if not self._settled.done():
            self._settled.set_exception(ConnectFailed(error.message))
            self._settled.exception()  # retrieved, as there may be no waiter
        streams = list(self._streams.values())
        self._streams.clear()
        self._retiring = True
        self._transport.abort()
        for stream in streams:
            _fail(stream, error)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)


class FrameFilter:
    """Counts the frames for h2, and removes GOAWAY, which would end the connection at the first one.

    An endpoint that restarts sends GOAWAY and then finishes its open streams; the connection handles that itself.
    h2 needs some 20 µs for any frame, so an endpoint may send a number of them for each request and for the bytes of
    its answers, and no more.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._allowed_frames = float(FRAMES_PER_CONNECTION)

    @property
    def is_flooded(self) -> bool:
        """Whether the endpoint has sent more frames than it may."""
        return self._allowed_frames < 0

    def allow(self, frames: int) -> None:
        """Allow more frames."""
        self._allowed_frames += frames

    def feed(self, data: bytes) -> tuple[bytes, Goaway | None]:
        """Return the complete frames for h2, and the last GOAWAY, if any."""
        buffer = self._buffer + data if self._buffer else data
        passed: list[bytes] = []
        goaway: Goaway | None = None
        at = 0
        while len(buffer) - at >= FRAME_HEADER_BYTES:
            length = int.from_bytes(buffer[at : at + 3], "big")
            end = at + FRAME_HEADER_BYTES + length
            if length > MAX_FRAME_BYTES:
                end = len(buffer)  # h2 reports the error
            elif end > len(buffer):
                break
            self._allowed_frames -= 1
            if buffer[at + 3] == _DATA:
                self._allowed_frames += length / BYTES_PER_FRAME
            if buffer[at + 3] == _GOAWAY and length >= 8:
                goaway = _goaway(buffer[at + FRAME_HEADER_BYTES : end])
            else:
                passed.append(buffer[at:end])
            at = end
        self._buffer = buffer[at:]
        return b"".join(passed), goaway


def _goaway(payload: bytes) -> Goaway:
    last_stream_id = int.from_bytes(payload[:4], "big") & _STREAM_ID_MASK
    return Goaway(last_stream_id, int.from_bytes(payload[4:8], "big"))


def _our_settings(settings: HttpClientSettings) -> dict[SettingCodes, int]:
    return {
        SettingCodes.ENABLE_PUSH: 0,
        SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEAD_BYTES,
        # Large enough for a whole answer, so that no window update is needed.
        SettingCodes.INITIAL_WINDOW_SIZE: settings.read_body_bytes,
    }


def _headers(head: RequestHead, body: bytes, signature: Signature | None) -> list[tuple[str, str]]:
    target = head.target
    headers = [
        (":method", head.method),
        (":scheme", "https"),
        (":authority", target.authority),
        (":path", target.path),
        *head.headers,
        ("content-length", str(len(body))),
    ]
    if signature is not None:
        headers += signature_headers(signature)
    return headers


def _take_head(stream: _Stream, headers: dict[str, str]) -> None:
    status = headers.get(":status", "")
    stream.status = int(status) if status.isascii() and status.isdigit() and len(status) == 3 else 0
    stream.retry_after = headers.get("retry-after")


def _fail(stream: _Stream, error: DeliveryFailed) -> None:
    if not stream.exchange.done():
        stream.exchange.set_exception(error)

"""Whatever an endpoint sends, a connection ends in an answer or a DeliveryFailed, and raises nothing else."""

import asyncio

from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.errors import DeliveryFailed
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.connection import Connection, Deadline
from penstock.delivery.http.http1 import Http1Connection
from penstock.delivery.http.http2 import Http2Connection
from penstock.delivery.http.request import request_head
from penstock.delivery.http.settings import KEPT_BODY_BYTES, HttpClientSettings
from penstock.edge.outbox import Outbox

HEAD = request_head("https://shop.example/hook", "token")


class DeafTransport(asyncio.Transport):
    """Takes everything and says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: object) -> None:
        """Take it."""

    def close(self) -> None:
        """Closed."""
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self.closed


class NoOwner:
    """A pool that keeps nothing."""

    def __init__(self) -> None:
        self.outbox = Outbox()

    def opened(self, connection: Connection) -> None:
        """Open."""

    def freed(self, connection: Connection) -> None:
        """Free."""

    def lost(self, connection: Connection) -> None:
        """Closed."""


def end_of(exchange: "asyncio.Future[Answer]") -> Answer | DeliveryFailed:
    assert exchange.done()
    error = exchange.exception()
    assert error is None or isinstance(error, DeliveryFailed), error
    return error or exchange.result()


HTTP1_PIECES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.0 204\r\n",
        b"HTTP/1.1 101 x\r\nupgrade: y\r\nconnection: upgrade\r\n\r\n",
        b"content-length: 5\r\n",
        b"content-length: 99999999999999999999\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: gzip\r\n",
        b"retry-after: \xff\r\n",
        b"connection: close\r\n",
        b"\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"hello",
        b"ffffffffffffffffff\r\n",
    ]
)


@given(pieces=st.lists(HTTP1_PIECES | st.binary(max_size=20), max_size=12))
def test_http1_answers_of_every_kind(pieces: list[bytes]) -> None:
    async def exchange() -> None:
        connection = Http1Connection(NoOwner(), HttpClientSettings())
        transport = DeafTransport()
        connection.connection_made(transport)
        answer = connection.send(HEAD, b"{}", None, Deadline(1e9, 1e9))
        for piece in pieces:
            if not transport.closed:
                connection.data_received(piece)
        connection.connection_lost(None)
        end = end_of(answer)
        assert isinstance(end, DeliveryFailed) or (end.status >= 200 and len(end.body) <= KEPT_BODY_BYTES)

    asyncio.run(exchange())


FRAMES = st.builds(
    lambda kind, flags, stream, payload: (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    ),
    kind=st.integers(0, 12),
    flags=st.integers(0, 255),
    stream=st.sampled_from([0, 1, 2, 3, 2**31]),
    payload=st.binary(max_size=40) | st.sampled_from([b"\x88", b"\x00" * 8, b"\x88\x40\x01a\x01b", b"\xff" * 8]),
)


@given(frames=st.lists(FRAMES | st.binary(max_size=20), max_size=10), settled=st.booleans())
def test_http2_answers_of_every_kind(frames: list[bytes], settled: bool) -> None:
    async def exchange() -> None:
        connection = Http2Connection(NoOwner(), HttpClientSettings())
        transport = DeafTransport()
        connection.connection_made(transport)
        if settled:
            connection.data_received(server_preface())
        answer = connection.send(HEAD, b"{}", None, Deadline(1e9, 1e9))
        for frame in frames:
            if not transport.closed:
                connection.data_received(frame)
        connection.connection_lost(None)
        end_of(answer)

    asyncio.run(exchange())


def server_preface() -> bytes:
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    return server.data_to_send()

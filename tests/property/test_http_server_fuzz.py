"""Whatever a client sends, in whatever pieces, a connection raises nothing, answers in order and keeps little."""

import asyncio
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.http.server import Exchange, Receive, Scope, Send, accept_lifespan, read_body, send_answer
from penstock.http.server.connection import MAX_HEAD_BYTES, SHORT_BODY_BYTES, HttpConnection
from penstock.http.server.open_connections import OpenConnections

STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) ")
REFUSALS = {b"400", b"408", b"413", b"431"}


class RecordingTransport(asyncio.Transport):
    """Takes everything, and notes what the server does."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Nothing to do."""

    def pause_reading(self) -> None:
        """Nothing to do."""

    def resume_reading(self) -> None:
        """Nothing to do."""


class DirectApp:
    """Answers at once with the length of the body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await accept_lifespan(receive, send)

    def take_on(self, exchange: Exchange) -> bool:
        exchange.respond(413 if exchange.is_too_long else 200, [], b"%d" % len(exchange.body))
        return True

    def body_limit(self, headers: list[tuple[bytes, bytes]]) -> int:
        return 1_000_000


async def asgi_app(scope: Scope, receive: Receive, send: Send) -> None:
    """The same through ASGI."""
    body = await read_body(receive)
    await send_answer(scope, send, 200, b"%d" % len(body), {})


PIECES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /a?b HTTP/1.1\r\n",
        b"GET / HTTP/1.0\r\n",
        b"GET / HTTP/2.0\r\n",
        b"GET /\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"Host: x\r\n",
        b"Host: y\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 7\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Content-Length: 70000\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Connection: upgrade\r\nUpgrade: h2c\r\n",
        b" folded\r\n",
        b"a: " + b"b" * 3_000 + b"\r\n",
        b"a: b\r\n" * 50,
        b"\r\n",
        b"\n",
        b"\0",
        b"hello",
        b"5\r\nhello\r\n",
        b"5;name=value\r\nhello\r\n",
        b"0\r\n\r\n",
        b"0\r\nHost: z\r\n\r\n",
        b"fffffffffffffffff\r\n",
        b"x" * 40_000,
    ]
)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def talk(app: Any, pieces: list[bytes]) -> RecordingTransport:
    """Send pieces until the server closes, and let it finish."""
    shared = OpenConnections(app, lambda: 1.0)
    connection, transport = HttpConnection(shared), RecordingTransport()
    connection.connection_made(transport)
    for piece in pieces:
        if transport.closed:
            break
        connection.data_received(piece)
        await asyncio.sleep(0)
        assert connection._unreported_bytes <= MAX_HEAD_BYTES
        assert connection._body_bytes <= max(SHORT_BODY_BYTES, connection._max_body_bytes)
    for _ in range(10):
        await asyncio.sleep(0)
    if not transport.closed:
        connection.eof_received()
    connection.connection_lost(None)
    await shared.finish(1)
    return transport


@given(pieces=st.lists(PIECES | st.binary(max_size=20), max_size=14), whole=st.booleans(), direct=st.booleans())
@example(pieces=[GET] * 40, whole=True, direct=False)
@example(
    pieces=[b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n", b"x" * 40_000], whole=True, direct=True
)
def test_requests_of_every_kind(pieces: list[bytes], whole: bool, direct: bool) -> None:
    sent = [b"".join(pieces)] if whole else pieces
    transport = asyncio.run(talk(DirectApp() if direct else asgi_app, sent))
    statuses = STATUS_LINE.findall(transport.written)
    final = [status for status in statuses if status != b"100"]
    assert set(final) <= REFUSALS | {b"200"}
    # After a refusal nothing of the connection is believed.
    assert not REFUSALS.intersection(final[:-1])
    if b"HTTP/1.1 400" in transport.written:
        assert b"connection: close" in transport.written.rpartition(b"HTTP/1.1 400")[2]


@given(cuts=st.lists(st.integers(1, 120), max_size=20), body=st.binary(max_size=50), chunked=st.booleans())
def test_how_a_request_is_cut_makes_no_difference(cuts: list[int], body: bytes, chunked: bool) -> None:
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    framed = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n" if chunked else body
    request = b"POST / HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n" + framed + GET
    at = sorted({cut for cut in cuts if cut < len(request)})
    pieces = [request[start:end] for start, end in zip([0, *at], [*at, len(request)], strict=True)]
    transport = asyncio.run(talk(DirectApp(), pieces))
    assert STATUS_LINE.findall(transport.written) == [b"200", b"200"]
    assert b"\r\n\r\n%d" % len(body) in transport.written

"""Endpoints whose answers never end: each fails its own delivery, early, and the event loop goes on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import repeat

import pytest
from h2.exceptions import H2Error
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    ExtensionFrame,
    Frame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from penstock.delivery.egress import AnyAddress, SocketAddress
from penstock.delivery.errors import AnswerTimedOut, ConnectFailed, ConnectionBroken
from penstock.delivery.http import http2 as http2_connection
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.request import head_with
from penstock.delivery.http.settings import HttpClientSettings
from tests.rigs.http2_endpoint import Request, http2
from tests.rigs.http_endpoints import RawServer, Talk, read_request
from tests.rigs.tls import server_context, trusting_context

ENOUGH_BYTES = 30_000_000
PIECE = b"x" * 50_000
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
SETTINGS = HttpClientSettings(request_timeout_s=60.0)


class Loopback(AnyAddress):
    """Every name is this machine."""

    async def addresses(self, host: str, port: int) -> list[SocketAddress]:
        return [("127.0.0.1", port)]


class Flood:
    """An answer that never ends, up to a limit that no answer should reach."""

    def __init__(self, start: bytes, piece: bytes) -> None:
        self._start = start
        self._piece = piece
        self.sent_bytes = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(self._start)
        with suppress(ConnectionError):
            for piece in repeat(self._piece):
                writer.write(piece)
                await writer.drain()
                self.sent_bytes += len(piece)
                if self.sent_bytes > ENOUGH_BYTES:
                    return


@asynccontextmanager
async def post_to(
    talk: Talk, *, secure: bool = False, settings: HttpClientSettings = SETTINGS
) -> AsyncIterator[Callable[[], "asyncio.Task[object]"]]:
    tls = server_context("shop.example", "h2") if secure else None
    async with (
        asyncio.timeout(60),
        RawServer(talk, tls).serving() as server,
        HttpClient(Loopback(), settings, trusting_context()) as client,
    ):
        head = head_with(f"{'https' if secure else 'http'}://shop.example:{server.port}/", ())
        yield lambda: asyncio.create_task(client.send(head, b"{}"))


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nLong: ", PIECE),
        (b"HTTP/1.1 200 OK\r\n", b"name: value\r\n" * 1000),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000),
        (CHUNKED + b"0\r\nLong: ", PIECE),
        (CHUNKED + b"0\r\n", b"name: value\r\n" * 1000),
        (CHUNKED + b"5;", PIECE),
        (CHUNKED, (b"1;" + b"x" * 10_000 + b"\r\n.\r\n") * 5),
    ],
    ids=["value", "headers", "1xx", "trailer value", "trailers", "extension", "extensions"],
)
async def test_an_answer_that_never_ends_is_given_up(start: bytes, piece: bytes) -> None:
    flood = Flood(start, piece)
    async with post_to(flood.talk) as post:
        with pytest.raises(ConnectionBroken):
            await post()
    assert flood.sent_bytes < ENOUGH_BYTES


def settings_frame() -> Frame:
    return SettingsFrame(0, settings={SettingsFrame.MAX_CONCURRENT_STREAMS: 100})


def data_frame() -> Frame:
    return DataFrame(1, data=b"")


@pytest.mark.parametrize(
    "frame",
    [
        settings_frame(),
        PingFrame(0, opaque_data=b"12345678"),
        WindowUpdateFrame(0, window_increment=1),
        PriorityFrame(1, depends_on=0),
        data_frame(),
        DataFrame(1, data=b"."),
        ContinuationFrame(1),
        RstStreamFrame(99),
        ExtensionFrame(77, 0),
    ],
    ids=["settings", "ping", "window", "priority", "empty data", "tiny data", "continuation", "reset", "unknown"],
)
async def test_frames_that_carry_nothing_are_limited(frame: Frame) -> None:
    sent_bytes = 0
    flood = frame.serialize() * 1000

    async def handle(request: Request) -> None:
        nonlocal sent_bytes
        session = request.session
        session.h2.send_headers(request.stream_id, [(":status", "200")])
        await session.flush()
        while sent_bytes < ENOUGH_BYTES:
            session.writer.write(flood)
            await session.writer.drain()
            sent_bytes += len(flood)

    async with post_to(http2(handle), secure=True) as post:
        with pytest.raises((ConnectionBroken, ConnectFailed)):
            await post()
    assert sent_bytes < ENOUGH_BYTES


async def test_informational_answers_are_limited() -> None:
    sent = 0

    async def handle(request: Request) -> None:
        nonlocal sent
        while sent < 100_000:
            request.session.h2.send_headers(request.stream_id, [(":status", "103")])
            sent += 1
            if sent % 100 == 0:
                await request.session.flush()
                await asyncio.sleep(0)  # the client has its turn

    async with post_to(http2(handle), secure=True) as post:
        with pytest.raises(ConnectionBroken, match="many more frames"):
            await post()
    assert sent < 100_000


async def test_one_turn_of_the_loop_reads_a_bounded_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much arrives at once, h2 gets some of it, and the loop has its turn."""
    pieces: list[int] = []
    receive = http2_connection.Http2Connection._receive

    def counted(self: http2_connection.Http2Connection, data: bytes) -> None:
        pieces.append(len(data))
        receive(self, data)

    monkeypatch.setattr(http2_connection.Http2Connection, "_receive", counted)

    async def handle(request: Request) -> None:
        await request.answer(200, b"x" * 900_000)

    async with post_to(http2(handle), secure=True) as post:
        await asyncio.gather(*(post() for _ in range(20)))
    assert sum(pieces) > 20 * 64_000
    assert max(pieces) <= 64 * 1024


@pytest.mark.parametrize("secure", [False, True], ids=["http1", "http2"])
async def test_a_deadline_fires_while_the_endpoint_trickles(secure: bool) -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"1\r\n.\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)

    async def trickle_frames(request: Request) -> None:
        session = request.session
        session.h2.send_headers(request.stream_id, [(":status", "200")])
        with suppress(ConnectionError, H2Error):
            while not session.writer.is_closing():
                session.h2.send_data(request.stream_id, b".")
                await session.flush()
                await asyncio.sleep(0.05)

    settings = HttpClientSettings(request_timeout_s=0.5)
    async with post_to(http2(trickle_frames) if secure else trickle, secure=secure, settings=settings) as post:
        with pytest.raises(AnswerTimedOut):
            await post()


async def test_many_requests_with_long_answers_are_within_the_limits() -> None:
    async def handle(request: Request) -> None:
        await request.answer(200, b"x" * 200_000)

    async with post_to(http2(handle), secure=True) as post:
        for _ in range(5):
            assert len(await asyncio.gather(*(post() for _ in range(50)))) == 50

"""Clients that never end, trickle, lie about their bodies or come in crowds: each costs only its own connection."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import repeat
from urllib.parse import urlsplit

import pytest

from penstock.http.api.app import ApiApp
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import Call, RouteTable, route, routes_of
from penstock.http.auth import RequestGuard
from penstock.http.server import (
    App,
    Exchange,
    HttpServer,
    Receive,
    Scope,
    Send,
    accept_lifespan,
    open_connections,
    read_body,
    send_answer,
    server,
)
from penstock.http.server import connection as limits

PIECE = b"x" * 50_000
ENOUGH_BYTES = 50_000_000
HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what was received."""
    if scope["type"] == "lifespan":
        await accept_lifespan(receive, send)
        return
    body = await read_body(receive)
    headers = [name.decode("latin-1") for name, _ in scope["headers"]]
    answer = json.dumps({"headers": headers, "body_bytes": len(body)}).encode()
    await send_answer(scope, send, 200, answer, {})


class DirectApp:
    """Answers without ASGI, and allows long bodies only to those who say who they are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await accept_lifespan(receive, send)

    def take_on(self, exchange: Exchange) -> bool:
        exchange.respond(413 if exchange.is_too_long else 200, [], b"%d" % len(exchange.body))
        return True

    def body_limit(self, headers: list[tuple[bytes, bytes]]) -> int:
        return 1_000_000 if (b"authorization", b"known") in headers else 0


class Client:
    """A connection that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._first = b""
        self.body = b""

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def flood(self, pieces: Iterator[bytes]) -> int:
        """Send until the server answers or closes; return how much it took, or fail after a lot."""
        answering = asyncio.create_task(self._first_byte())
        sent_bytes = 0
        with suppress(ConnectionError):
            while not answering.done() and (piece := next(pieces, b"")):
                await self.send(piece)
                sent_bytes += len(piece)
                assert sent_bytes < ENOUGH_BYTES, "the server takes anything"
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            self._first = await answering
        return sent_bytes

    async def _first_byte(self) -> bytes:
        with suppress(ConnectionError):
            return await self._reader.read(1)
        return b""

    async def status(self) -> int:
        """The status of the next answer."""
        async with asyncio.timeout(60):
            head = (self._first + await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = [line for line in head.split("\r\n") if line.lower().startswith("content-length: ")]
            self.body = await self._reader.readexactly(int(length[0].partition(": ")[2])) if length else b""
            self._first = b""
            return int(head.split()[1])

    async def is_closed(self) -> bool:
        """Wait for the server to close."""
        async with asyncio.timeout(60):
            with suppress(ConnectionError):
                return await self._reader.read(1) == b""
            return True

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def served(given: App = app) -> AsyncIterator[int]:
    """Serve an app; its port."""
    async with HttpServer(given, "127.0.0.1", 0) as running:
        yield urlsplit(running.url).port or 0


@asynccontextmanager
async def client_of(port: int, source: str = "127.0.0.1") -> AsyncIterator[Client]:
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((source, 0))
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    client = Client(*await asyncio.open_connection(sock=sock))
    yield client
    client.close()


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "start",
    [
        b"GET /",
        HEAD,
        HEAD + b"Long: ",
        CHUNKED + b"0\r\n",
        CHUNKED + b"0\r\nLong: ",
        CHUNKED + b"5\r\nhello\r\n5;",
        CHUNKED + b"5\r\nhello\r\n5;name=",
    ],
    ids=["url", "name", "value", "trailer name", "trailer value", "extension", "extension value"],
)
async def test_what_never_ends_is_refused(start: bytes) -> None:
    async with served() as port, client_of(port) as client:
        await client.send(start)
        await client.flood(repeat(PIECE))
        assert await client.status() in (400, 431)
        assert await client.is_closed()


async def test_many_trailers_are_refused() -> None:
    async with served() as port, client_of(port) as client:
        await client.send(CHUNKED + b"0\r\n")
        await client.flood(repeat(b"name: value\r\n" * 1000))
        assert await client.status() == 431


async def test_trailers_are_not_headers() -> None:
    async with served() as port, client_of(port) as client:
        await client.send(CHUNKED + b"5\r\nhello\r\n0\r\nOrigin: http://evil.example\r\nX-Penstock: 1\r\n\r\n")
        assert await client.status() == 200
    assert json.loads(client.body) == {"headers": ["host", "transfer-encoding"], "body_bytes": 5}


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
    ],
    ids=["no host", "two hosts", "two hosts in 1.0", "0.9", "2.0", "h2", "headers"],
)
async def test_what_is_not_a_proper_head_is_refused(request_head: bytes) -> None:
    async with served() as port, client_of(port) as client:
        await client.send(request_head)
        assert await client.status() == 400
        assert await client.is_closed()


@pytest.mark.parametrize(
    "start", [b"GET /", HEAD, HEAD + b"Content-Length: 9999\r\n\r\nhello"], ids=["line", "head", "body"]
)
async def test_a_request_must_arrive_in_time(monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(limits, "HEAD_S", 0.2)
    monkeypatch.setattr(limits, "BODY_S", 0.2)
    monkeypatch.setattr(server, "EXPIRE_EVERY_S", 0.05)
    async with served() as port, client_of(port) as client:
        await client.send(start)
        trickling = asyncio.create_task(trickle(client))
        assert await client.status() == 408
        assert await client.is_closed()
        trickling.cancel()


async def trickle(client: Client) -> None:
    """Send something again and again, so that the connection is never idle."""
    with suppress(ConnectionError):
        while True:
            await client.send(b"a")
            await asyncio.sleep(0.1)


async def test_an_answer_must_be_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWER_S", 0.2)
    monkeypatch.setattr(server, "EXPIRE_EVERY_S", 0.05)
    given_up = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        await receive()
        gone = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            await asyncio.sleep(0)
        given_up.set()

    async with served(endless) as port, client_of(port) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(60):
            await given_up.wait()


async def test_a_request_in_pieces_is_answered_if_it_arrives_in_time() -> None:
    async with served() as port, client_of(port) as client:
        for byte in HEAD + b"Content-Length: 5\r\n\r\nhello":
            await client.send(bytes([byte]))
        assert await client.status() == 200


async def test_no_more_connections_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_connections, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(open_connections, "MAX_CONNECTIONS_OF_PEER", 2)
    get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    async with served() as port, client_of(port) as first, client_of(port) as second, client_of(port) as third:
        for client in (first, second):
            await client.send(get)
            assert await client.status() == 200
        assert await third.is_closed()
        async with client_of(port, "127.0.0.2") as other, client_of(port, "127.0.0.3") as beyond:
            await other.send(get)
            assert await other.status() == 200
            assert await beyond.is_closed()
            first.close()
            assert await answers_soon(port, get)


async def answers_soon(port: int, request: bytes) -> bool:
    """Whether a new connection is answered, once the server has noticed that another was closed."""
    async with asyncio.timeout(60):
        while True:
            async with client_of(port) as client:
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    await client.send(request)
                    return await client.status() == 200


@route("POST", "/echo", summary="Count.", max_body_bytes=100_000)
def count(call: Call[NoQuery, list[int]]) -> int:
    return len(call.body)


LONG = b"Content-Type: application/json\r\nContent-Length: 90000000\r\n"


async def test_a_long_body_is_refused_by_its_length_without_being_read() -> None:
    async with served(DirectApp()) as port:
        for head, status in ((LONG, 413), (b"Authorization: known\r\n" + LONG, 413)):
            async with client_of(port) as client:
                await client.send(HEAD + head + b"\r\n")
                assert await client.status() == status


@pytest.mark.parametrize(("key", "status"), [(b"secret", 413), (b"guessed", 401)])
async def test_the_api_reads_no_body_that_it_refuses(key: bytes, status: int) -> None:
    api = ApiApp(RouteTable(*routes_of(count)), RequestGuard("secret"))
    async with served(api) as port:
        for head in (LONG, LONG + b"Expect: 100-continue\r\n"):
            async with client_of(port) as client:
                await client.send(HEAD + head + b"Authorization: Bearer " + key + b"\r\n\r\n")
                assert await client.status() == status


async def test_a_direct_app_decides_who_may_send_a_long_body() -> None:
    body = b"Content-Length: 900000\r\n\r\n" + b"x" * 900_000
    async with served(DirectApp()) as port:
        async with client_of(port) as client:
            await client.send(HEAD + b"Authorization: known\r\n" + body)
            assert (await client.status(), client.body) == (200, b"900000")
        async with client_of(port) as client:
            await client.flood(iter([HEAD, body]))
            assert await client.status() == 413


async def test_a_body_in_chunks_ends_where_the_app_says() -> None:
    async with served(DirectApp()) as port, client_of(port) as client:
        await client.send(HEAD + b"Authorization: known\r\nTransfer-Encoding: chunked\r\n\r\n")
        await client.flood(repeat(b"c350\r\n" + PIECE + b"\r\n"))
        assert await client.status() == 413


async def test_a_body_is_not_read_before_the_app_asks_for_it() -> None:
    async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        await send_answer(scope, send, 401, b"", {})

    async with served(refuses) as port, client_of(port) as client:
        await client.send(HEAD + b"Expect: 100-continue\r\n" + LONG + b"\r\n")
        assert await client.status() == 401
        assert await client.is_closed()
        sent_bytes = await client.flood(repeat(PIECE))
    assert sent_bytes < limits.LINGER_BYTES + 10_000_000  # the sockets' buffers


async def test_a_long_body_arrives_whole_though_the_app_is_slow() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
            return
        await asyncio.wait([sending], timeout=0.2)
        done_early.append(sending.done())
        await app(scope, receive, send)

    done_early: list[bool] = []

    async with served(slow) as port, client_of(port) as client:
        body = b"x" * 30_000_000
        sending = asyncio.create_task(client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body))
        assert await client.status() == 200
        assert json.loads(client.body)["body_bytes"] == len(body)
        await sending
        assert done_early == [False]
        await client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await client.status() == 200


async def test_100_continue_comes_after_the_answers_before_it() -> None:
    asked = asyncio.Event()
    may_answer = asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/wait":
            asked.set()
            await may_answer.wait()
        await app(scope, receive, send)

    async with served(waiting) as port, client_of(port) as client:
        await client.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await client.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        await asked.wait()
        may_answer.set()
        assert await client.status() == 200
        assert await client.status() == 100
        await client.send(b"hello")
        assert await client.status() == 200

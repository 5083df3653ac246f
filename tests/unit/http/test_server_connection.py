"""The HTTP/1.1 server, spoken to in bytes over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from penstock.http.server.asgi import Exchange, Receive, Scope, Send, accept_lifespan, read_body, send_answer
from penstock.http.server.connection import MAX_HEAD_BYTES, MAX_PIPELINED
from penstock.http.server.server import HttpServer

BIG = b"x" * 5_000_000


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await accept_lifespan(receive, send)
        return
    body = await read_body(receive)
    match scope["path"]:
        case "/echo":
            await send_answer(scope, send, 200, scope["method"].encode() + b" " + body, {})
        case "/gone":
            gone = await receive()
            DISCONNECTS.put_nowait(gone["type"])
        case "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-kind", b"stream")]})
            for piece in (b"one", b"", b"two"):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"three"})
        case "/unsized":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"no length given"})
        case "/big":
            await send_answer(scope, send, 200, BIG, {})
        case "/split":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nset-cookie: b")]})
            await send({"type": "http.response.body", "body": b""})
        case "/raise":
            raise RuntimeError("nobody thought of this")
        case "/silent":
            return
        case path:
            await send_answer(scope, send, 404, f"{path}?{scope['query_string'].decode()}".encode(), {})


DISCONNECTS: "asyncio.Queue[str]" = asyncio.Queue()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    def get(self, path: str, extra: bytes = b"") -> None:
        self.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode() + extra + b"\r\n")

    async def read(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {line.split(": ")[0].lower(): line.split(": ")[1] for line in head[1:] if line}
            if headers.get("transfer-encoding") == "chunked":
                return int(head[0].split()[1]), headers, await self._chunks()
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            return int(head[0].split()[1]), headers, body

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return body

    async def is_closed(self) -> bool:
        async with asyncio.timeout(60):
            return await self.reader.read(1) == b""


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with HttpServer(app, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        yield Client(reader, writer)
        writer.close()


async def test_one_connection_answers_many_requests(client: Client) -> None:
    for number in range(3):
        client.get(f"/a%20b/{number}?q={number}")
        status, headers, body = await client.read()
        assert (status, body) == (404, f"/a b/{number}?q={number}".encode())
        assert headers["date"].endswith("GMT")


async def test_pipelined_requests_are_answered_in_order(client: Client) -> None:
    count = MAX_PIPELINED * 3
    client.send(b"".join(f"GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for n in range(count)))
    assert [(await client.read())[2] for _ in range(count)] == [f"/{n}?".encode() for n in range(count)]


async def test_bodies_in_pieces_and_in_chunks(client: Client) -> None:
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc")
    await client.writer.drain()
    client.send(b"def")
    assert (await client.read())[2] == b"POST abcdef"
    client.send(b"PUT /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert (await client.read())[2] == b"PUT abcde"


async def test_a_client_that_asks_first_is_told_to_go_on(client: Client) -> None:
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"ok")
    assert (await client.read())[2] == b"POST ok"


async def test_an_answer_in_pieces(client: Client) -> None:
    client.get("/stream")
    status, headers, body = await client.read()
    assert (status, headers["x-kind"], body) == (200, "stream", b"onetwothree")
    client.get("/unsized")
    assert (await client.read())[2] == b"no length given"


async def test_a_large_answer_to_a_slow_reader_is_whole(client: Client) -> None:
    client.get("/big")
    client.get("/echo")
    assert (await client.read())[2] == BIG
    assert (await client.read())[2] == b"GET "


@pytest.mark.parametrize(
    "request_head",
    [b"GET /echo HTTP/1.0\r\n\r\n", b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"],
    ids=["http 1.0", "asked to"],
)
async def test_closes_after_the_answer_where_the_client_wants_it(client: Client, request_head: bytes) -> None:
    client.send(request_head)
    status, headers, body = await client.read()
    assert (status, headers["connection"], body) == (200, "close", b"GET ")
    assert await client.is_closed()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01 not http at all\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: nine\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", 404),
    ],
    ids=["no http", "no header", "long head", "no length", "upgrade"],
)
async def test_what_cannot_be_read_is_refused_and_the_connection_closed(
    client: Client, raw: bytes, status: int
) -> None:
    client.send(raw)
    assert (await client.read())[0] == status
    assert await client.is_closed()


@pytest.mark.parametrize("path", ["/raise", "/silent", "/split"])
async def test_an_app_that_fails_costs_its_connection_only(client: Client, path: str) -> None:
    client.get(path)
    assert (await client.read())[0] == 500
    assert await client.is_closed()


async def test_the_app_hears_when_the_client_goes(client: Client) -> None:
    client.get("/gone")
    await client.writer.drain()
    client.writer.close()
    assert await asyncio.wait_for(DISCONNECTS.get(), 60) == "http.disconnect"


async def test_stopping_closes_connections_that_wait_for_nothing() -> None:
    async with HttpServer(app, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        client = Client(reader, writer)
        client.get("/echo")
        await client.read()
    assert await client.is_closed()
    writer.close()


class DirectApp:
    """Answers some paths without ASGI, and remembers exchanges that it will answer later."""

    def __init__(self) -> None:
        self.later: asyncio.Queue[Exchange] = asyncio.Queue()
        self.gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    def take_on(self, exchange: Exchange) -> bool:
        match exchange.target.partition(b"?")[0]:
            case b"/direct":
                exchange.respond(201, [(b"x-method", exchange.method.encode())], exchange.target + exchange.body)
            case b"/big":
                exchange.respond(200, [], BIG)
            case b"/later":
                self.later.put_nowait(exchange)
            case b"/task":
                exchange.run_in_task(self._wait(exchange))
            case b"/raise":
                raise RuntimeError("nobody thought of this")
            case b"/forgotten":
                exchange.run_in_task(asyncio.sleep(0))
            case _:
                return False
        return True

    async def _wait(self, exchange: Exchange) -> None:
        await exchange.hung_up()
        self.gone.set()


@pytest.fixture
def direct() -> DirectApp:
    return DirectApp()


@pytest.fixture
async def direct_client(direct: DirectApp) -> AsyncIterator[Client]:
    async with HttpServer(direct, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        yield Client(reader, writer)
        writer.close()


async def test_direct_answers_and_those_by_asgi_share_a_connection(direct_client: Client) -> None:
    for number in range(3):
        direct_client.send(b"POST /direct?n=%d HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody" % number)
        status, headers, body = await direct_client.read()
        assert (status, headers["x-method"], body) == (201, "POST", b"/direct?n=%dbody" % number)
        direct_client.get("/echo")
        assert (await direct_client.read())[2] == b"GET "


async def test_a_direct_answer_to_head_has_a_length_and_no_body(direct_client: Client) -> None:
    direct_client.send(b"HEAD /direct HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head = await direct_client.reader.read()
    assert b"content-length: 7\r\n" in head
    assert head.endswith(b"\r\n\r\n")


async def test_requests_behind_one_that_waits_are_answered_after_it(direct: DirectApp, direct_client: Client) -> None:
    direct_client.get("/later")
    for _ in range(MAX_PIPELINED * 2):
        direct_client.get("/direct")
    exchange = await direct.later.get()
    exchange.respond(200, [], b"first")
    assert (await direct_client.read())[2] == b"first"
    assert [(await direct_client.read())[0] for _ in range(MAX_PIPELINED * 2)] == [201] * MAX_PIPELINED * 2


async def test_thousands_of_requests_at_once_are_answered_in_order(direct_client: Client) -> None:
    direct_client.send(b"".join(b"GET /direct?%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(3000)))
    assert [(await direct_client.read())[2] for _ in range(3000)] == [b"/direct?%d" % n for n in range(3000)]


async def test_large_direct_answers_to_a_slow_reader_are_whole(direct_client: Client) -> None:
    for _ in range(3):
        direct_client.get("/big")
    for _ in range(3):
        assert (await direct_client.read())[2] == BIG


@pytest.mark.parametrize("path", ["/raise", "/forgotten"])
async def test_a_direct_app_that_fails_costs_its_connection_only(direct_client: Client, path: str) -> None:
    direct_client.get(path)
    assert (await direct_client.read())[0] == 500
    assert await direct_client.is_closed()


async def test_a_direct_app_hears_when_the_client_goes(direct: DirectApp, direct_client: Client) -> None:
    direct_client.get("/task")
    await direct_client.writer.drain()
    direct_client.writer.close()
    await asyncio.wait_for(direct.gone.wait(), 60)


async def test_an_answer_to_a_client_that_has_gone_harms_nobody(direct: DirectApp, direct_client: Client) -> None:
    direct_client.get("/later")
    exchange = await direct.later.get()
    direct_client.writer.transport.abort()
    await asyncio.wait_for(exchange.hung_up(), 60)
    exchange.respond(200, [], b"too late")


async def test_stopping_waits_for_a_direct_answer(direct: DirectApp) -> None:
    async with HttpServer(direct, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        client = Client(reader, writer)
        client.get("/later")
        exchange = await direct.later.get()
        # After the stop has begun to wait.
        asyncio.get_running_loop().call_later(0.05, exchange.respond, 200, [], b"done")
    status, headers, body = await client.read()
    assert (status, headers["connection"], body) == (200, "close", b"done")
    writer.close()

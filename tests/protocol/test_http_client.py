"""The asyncio HTTP client as our own parts use it: any method, whole answers, any address, and cancels."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.delivery.egress import AnyAddress
from penstock.delivery.errors import AnswerTimedOut, ConnectFailed, StaleConnection
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.client import HttpClient, exchange_once
from penstock.delivery.http.http1 import Http1Connection
from penstock.delivery.http.request import head_with, request_head
from penstock.delivery.http.settings import HttpClientSettings, own_part_settings
from penstock.domain.signing import Signature
from tests.rigs.http2_endpoint import Request, http2
from tests.rigs.http_endpoints import RawServer, Talk, answers, read_request
from tests.rigs.tls import server_context, trusting_context

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Loopback(AnyAddress):
    """Every name is this machine."""

    async def addresses(self, host: str, port: int) -> list[tuple[str, int] | tuple[str, int, int, int]]:
        return [("127.0.0.1", port)]


@asynccontextmanager
async def talking_to(talk: Talk, settings: HttpClientSettings | None = None) -> AsyncIterator[tuple[HttpClient, str]]:
    settings = settings or own_part_settings(5.0, 1000)
    async with (
        asyncio.timeout(60),
        RawServer(talk).serving() as server,
        HttpClient(AnyAddress(), settings) as client,
    ):
        yield client, f"http://127.0.0.1:{server.port}/"


async def test_every_method_goes_out_with_its_headers() -> None:
    asked: list[tuple[str, dict[str, str], bytes]] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await read_request(reader))
            writer.write(OK)

    async with talking_to(talk) as (client, url):
        for method in ("GET", "PUT", "DELETE"):
            await client.send(head_with(f"{url}a?b=c", (("x-a", "1"),), method), b"{}" if method == "PUT" else b"")
    assert [first for first, _, _ in asked] == [f"{method} /a?b=c HTTP/1.1" for method in ("GET", "PUT", "DELETE")]
    assert [body for _, _, body in asked] == [b"", b"{}", b""]
    assert asked[0][1]["x-a"] == "1"


async def test_a_request_may_have_a_shorter_time_out_than_the_others() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The first request of a connection is answered, the second is not.
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        await reader.read()

    async with talking_to(talk, own_part_settings(600.0, 1000)) as (client, url):
        assert (await client.send(request_head(url, None), b"{}", timeout_s=500.0)).status == 200
        with pytest.raises(AnswerTimedOut) as failed:
            await client.send(request_head(url, None), b"{}", timeout_s=0.2)
    assert failed.value.after_s == 0.2


async def test_a_connection_that_is_not_accepted_counts_towards_the_time_out() -> None:
    class NoAddress(AnyAddress):
        async def addresses(self, host: str, port: int) -> list[tuple[str, int] | tuple[str, int, int, int]]:
            await asyncio.Event().wait()
            raise AssertionError

    async with asyncio.timeout(60), HttpClient(NoAddress(), own_part_settings(600.0, 1000)) as client:
        with pytest.raises(AnswerTimedOut) as failed:
            await client.send(request_head("http://shop.example/", None), b"{}", timeout_s=0.2)
    assert failed.value.after_s == 0.2


async def test_header_names_have_the_usual_case_in_http_1() -> None:
    lines: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.extend((await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[1:])
        writer.write(OK)

    async with talking_to(talk) as (client, url):
        head = request_head(url, "secret").with_values((("ce-id", "1"),))
        await client.send(head, b"{}", Signature("1", "2", "3"))
    names = [line.partition(":")[0] for line in lines if line]
    assert names == [
        "Host", "Content-Type", "Accept", "User-Agent", "Authorization", "Ce-Id", "Content-Length", "Webhook-Id",
        "Webhook-Timestamp", "Webhook-Signature",
    ]  # fmt: skip


async def test_a_get_without_a_body_is_whole_over_http2() -> None:
    async def handle(request: Request) -> None:
        await request.answer(200, request.headers[":method"].encode() + request.body)

    tls = server_context("shop.example", "h2")
    async with (
        asyncio.timeout(60),
        RawServer(http2(handle), tls).serving() as server,
        HttpClient(Loopback(), HttpClientSettings(), trusting_context()) as client,
    ):
        answer = await client.send(head_with(f"https://shop.example:{server.port}/", (), "GET"), b"")
    assert (answer.status, answer.body) == (200, b"GET")


@pytest.mark.parametrize(("size", "kept"), [(1000, 1000), (1001, 1001), (5000, 1001)])
async def test_an_answer_is_kept_to_the_limit_and_one_byte_more_shows_that_it_was_longer(size: int, kept: int) -> None:
    async with talking_to(answers(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (size, b"x" * size))) as (
        _,
        url,
    ):
        answer = await exchange_once(head_with(url, (), "GET"), b"", own_part_settings(5.0, 1000))
    assert answer.body == b"x" * kept


async def closes_after_the_second_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(OK)
    await read_request(reader)
    writer.close()


async def test_a_request_that_is_not_repeatable_is_sent_once() -> None:
    async with talking_to(closes_after_the_second_request) as (client, url):
        head = head_with(url, ())
        await client.send(head, b"{}")
        with pytest.raises(StaleConnection):
            await client.send(head, b"{}", repeatable=False)


async def test_a_request_that_is_repeatable_goes_over_a_new_connection() -> None:
    async with talking_to(closes_after_the_second_request) as (client, url):
        head = head_with(url, ())
        for _ in range(3):
            assert (await client.send(head, b"{}")).status == 200


async def test_what_is_busy_finishes_after_retiring_and_what_is_idle_closes() -> None:
    may_answer = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, _, _ = await read_request(reader)
        if "slow" in first:
            await may_answer.wait()
        writer.write(OK)

    async with (
        asyncio.timeout(60),
        RawServer(talk).serving() as server,
        HttpClient(AnyAddress(), own_part_settings(5.0, 1000)) as client,
    ):
        url = f"http://127.0.0.1:{server.port}/"
        slow = asyncio.create_task(client.send(head_with(f"{url}slow", ()), b""))
        await server.until_open(1)
        await client.send(head_with(url, ()), b"")
        client.retire()
        await server.until_open(1)
        may_answer.set()
        assert (await slow).status == 200
        await server.until_open(0)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("outlives", [True, False])
async def test_an_answer_in_the_moment_of_a_cancel_is_returned_only_if_asked_for(
    fresh: bool, outlives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talking_to(answers(OK)) as (client, url):
        head = head_with(url, ())
        if not fresh:
            await client.send(head, b"")
        finish = Http1Connection._finish
        sending: list[asyncio.Task[Answer]] = []

        def finish_and_cancel(connection: Http1Connection) -> None:
            finish(connection)
            sending[0].cancel()

        monkeypatch.setattr(Http1Connection, "_finish", finish_and_cancel)
        sending.append(asyncio.create_task(client.send(head, b"", outlives_cancel=outlives)))
        (end,) = await asyncio.gather(*sending, return_exceptions=True)
    assert isinstance(end, Answer if outlives else asyncio.CancelledError)


async def test_a_silent_server_and_an_unknown_name_are_errors() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking_to(silent, own_part_settings(0.1, 1000)) as (client, url):
        with pytest.raises(AnswerTimedOut, match=r"within 0\.1 s"):
            await client.send(head_with(url, (), "GET"), b"")
        with pytest.raises(ConnectFailed, match="cannot resolve"):
            await client.send(head_with("http://no-such-host.invalid/", (), "GET"), b"")


class RememberingGuard(AnyAddress):
    """Remembers the socket of the last connection."""

    sock: socket.socket

    def check_peer(self, sock: socket.socket) -> None:
        self.sock = sock


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="an option of Linux")
async def test_an_incomplete_answer_is_acknowledged_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else an endpoint that writes head and body separately sends the body only 40 ms later.
    guard, has_head, quick = RememberingGuard(), asyncio.Event(), []
    parse = Http1Connection.data_received

    def parse_and_look(connection: Http1Connection, data: bytes) -> None:
        parse(connection, data)
        quick.append(guard.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
        has_head.set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        writer.write(OK[:-2])
        await has_head.wait()
        writer.write(OK[-2:])

    async with (
        asyncio.timeout(60),
        RawServer(talk).serving() as server,
        HttpClient(guard, own_part_settings(5.0, 1000)) as client,
    ):
        head = head_with(f"http://127.0.0.1:{server.port}/", ())
        await client.send(head, b"{}")
        monkeypatch.setattr(Http1Connection, "data_received", parse_and_look)
        assert (await client.send(head, b"{}")).body == b"{}"
    assert quick[0] == 1

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.domain.errors import InvalidArgument, NotFound, Unavailable
from penstock.router.config import fetch
from penstock.router.config.configuration import PoolConfiguration
from penstock.router.config.fetch import fetch_configuration, is_file

GOOD = b'{"processingPools":[{"code":"P","concurrency":3}],"queues":[]}'
Handle = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(handle: Handle) -> AsyncIterator[str]:
    """Hands each request's head to `handle` and then hangs up; yields host:port."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(await reader.readuntil(b"\r\n\r\n"), writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def answering(*pieces: bytes) -> Handle:
    async def handle(_: bytes, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return handle


def whole(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


async def codes(*sources: str) -> list[str]:
    return [pool.code for pool in (await fetch_configuration(sources)).processing_pools]


async def test_a_json_file_and_a_toml_file_are_read(tmp_path: Path) -> None:
    json_file, toml_file = tmp_path / "router.json", tmp_path / "router.toml"
    json_file.write_bytes(GOOD)
    toml_file.write_text('[[processingPools]]\ncode = "T"\nconcurrency = 2\n')

    assert await codes(str(json_file), str(toml_file)) == ["P", "T"]


async def test_a_url_is_asked_with_its_credentials_and_query() -> None:
    asked: list[bytes] = []

    async def handle(head: bytes, writer: asyncio.StreamWriter) -> None:
        asked.append(head)
        writer.write(whole(GOOD))

    async with raw_server(handle) as address:
        assert await codes(f"http://me:p%40ss@{address}/router.json?tenant=1") == ["P"]
    head = asked[0].decode()
    assert head.startswith("GET /router.json?tenant=1 HTTP/1.1\r\n")
    assert f"Host: {address}\r\n" in head
    assert f"Authorization: Basic {b64encode(b'me:p@ss').decode()}\r\n" in head


@pytest.mark.parametrize(
    "pieces",
    [
        (whole(GOOD)[:30], whole(GOOD)[30:]),
        (b"HTTP/1.1 200 OK\r\n\r\n", GOOD),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(GOOD), GOOD),),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", whole(GOOD)),
    ],
    ids=["in pieces", "until the end of the connection", "chunked", "after an interim answer"],
)
async def test_every_way_to_send_a_body_is_understood(pieces: tuple[bytes, ...]) -> None:
    async with raw_server(answering(*pieces)) as address:
        assert await codes(f"http://{address}/") == ["P"]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (whole(b"", "503 Service Unavailable"), "answered 503"),
        (b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", "redirects are not followed"),
        (whole(GOOD)[:-5], "closed the connection before the answer was complete"),
        (b"", "closed the connection before the answer was complete"),
        (b"SSH-2.0-OpenSSH\r\n", "is not HTTP/1.1"),
    ],
)
async def test_a_source_that_does_not_answer_properly_is_unavailable(sent: bytes, said: str) -> None:
    async with raw_server(answering(sent)) as address:
        with pytest.raises(Unavailable, match=said) as refused:
            await codes(f"http://me:hunter2@{address}/")
    assert "hunter2" not in refused.value.message


async def test_nobody_there_is_unavailable(unused_tcp_port: int) -> None:
    with pytest.raises(Unavailable, match="cannot get the router configuration"):
        await codes(f"http://127.0.0.1:{unused_tcp_port}/")


async def test_a_source_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT_S", 0.05)
    hung = asyncio.Event()

    async def handle(_: bytes, writer: asyncio.StreamWriter) -> None:
        hung.set()
        await writer.wait_closed()

    async with raw_server(handle) as address:
        with pytest.raises(Unavailable, match=r"within 0\.05 s"):
            await codes(f"http://{address}/")
        await asyncio.wait_for(hung.wait(), 60)


@pytest.mark.parametrize("chunked", [True, False])
async def test_too_much_is_refused(chunked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BYTES", 40)
    head = b"HTTP/1.1 200 OK\r\n\r\n" if chunked else b"HTTP/1.1 200 OK\r\nContent-Length: 62\r\n\r\n"
    async with raw_server(answering(head, GOOD)) as address:
        with pytest.raises(InvalidArgument, match="larger than 40 bytes"):
            await codes(f"http://{address}/")


async def test_too_large_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BYTES", 40)
    (tmp_path / "router.json").write_bytes(GOOD)

    with pytest.raises(InvalidArgument, match="larger than 40 bytes"):
        await codes(str(tmp_path / "router.json"))


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b'{"queues": 1}'])
async def test_what_is_no_configuration_is_refused(body: bytes) -> None:
    async with raw_server(answering(whole(body))) as address:
        with pytest.raises(InvalidArgument):
            await codes(f"http://{address}/")


async def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no router configuration at"):
        await codes(str(tmp_path / "router.json"))
    with pytest.raises(Unavailable, match="cannot read"):
        await codes(str(tmp_path))


@pytest.mark.parametrize("source", ["ftp://host/x", "http://", "http://host:99999/", "http://ho\nst/", "file:///etc/x"])
async def test_what_is_neither_file_nor_url_is_refused(source: str) -> None:
    assert not is_file(source)
    with pytest.raises(InvalidArgument, match="neither a file nor a URL"):
        await codes(source)


async def test_without_a_source_it_says_where_to_give_one() -> None:
    with pytest.raises(InvalidArgument, match="--config"):
        await fetch_configuration([])


async def test_one_source_that_fails_fails_all(tmp_path: Path) -> None:
    (tmp_path / "router.json").write_bytes(GOOD)

    with pytest.raises(NotFound):
        await codes(str(tmp_path / "router.json"), str(tmp_path / "other.json"))


async def test_ten_thousand_pools_are_read(tmp_path: Path) -> None:
    pools = [PoolConfiguration(f"POOL-{number}", 10, 60) for number in range(10_000)]
    (tmp_path / "router.json").write_bytes(msgspec.json.encode({"processingPools": pools}))

    assert len(await codes(str(tmp_path / "router.json"))) == 10_000

"""A STOMP connection, against a broker of a few lines that misbehaves as told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
import uvloop

from penstock.domain.errors import PenstockError
from penstock.queues.activemq import connection as stomp_connection
from penstock.queues.activemq.connection import StompAddress, StompConnection
from penstock.queues.activemq.stomp import Frame
from penstock.queues.errors import BrokerRefused, BrokerUnavailable, MalformedFrame

PATIENCE_S = 60
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def broker(behaviour: Behaviour) -> AsyncIterator[StompAddress]:
    """Answers each connection with a behaviour, then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behaviour(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_S):
        yield StompAddress("127.0.0.1", server.sockets[0].getsockname()[1], login="me", passcode="secret")


async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heart_beat: str = "0,0") -> bytes:
    frame = await reader.readuntil(b"\0")
    writer.write(f"CONNECTED\nversion:1.2\nheart-beat:{heart_beat}\n\n\0".encode())
    return frame


class Listener:
    """What a connection reported."""

    def __init__(self) -> None:
        self.messages: list[Frame] = []
        self.lost: asyncio.Future[PenstockError] = asyncio.get_running_loop().create_future()

    async def connect(self, address: StompAddress) -> StompConnection:
        return await StompConnection.connect(address, self.messages.append, self.lost.set_result)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_it_connects_on_either_event_loop(run: Callable[[Coroutine[None, None, None]], None]) -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer)
        await reader.readuntil(b"\0")
        writer.write(b"RECEIPT\nreceipt-id:1\n\n\0")
        await reader.read()

    async def connect_and_close() -> None:
        async with broker(behaviour) as address:
            await (await Listener().connect(address)).close()

    run(connect_and_close())


async def test_it_logs_in_with_the_protocol_s_version() -> None:
    seen: list[bytes] = []

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await welcome(reader, writer))
        await reader.read()

    async with broker(behaviour) as address:
        connection = await Listener().connect(address)
        connection.abort()

    assert b"accept-version:1.2\n" in seen[0]
    assert b"login:me\npasscode:secret\n" in seen[0]


async def test_an_error_at_login_is_a_refusal_without_the_password() -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\0")
        writer.write(b"ERROR\nmessage:User name [me] or password is invalid.\n\n\0")
        await writer.drain()

    async with broker(behaviour) as address:
        with pytest.raises(BrokerRefused, match="password is invalid") as told:
            await Listener().connect(address)

    assert "secret" not in str(told.value) + repr(address)


async def test_a_broker_that_hangs_up_at_login_is_away() -> None:
    async def behaviour(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\0")

    async with broker(behaviour) as address:
        with pytest.raises(BrokerUnavailable):
            await Listener().connect(address)


async def test_a_receipt_ends_its_request_and_no_other() -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer)
        for _ in range(2):
            await reader.readuntil(b"\0")
        writer.write(b"RECEIPT\nreceipt-id:2\n\n\0")
        await reader.readuntil(b"\0")
        writer.write(b"RECEIPT\nreceipt-id:1\n\n\0")
        await reader.read()

    async with broker(behaviour) as address:
        connection = await Listener().connect(address)
        first, second = connection.request("SEND", {}, b"1"), connection.request("SEND", {}, b"2")
        await connection.confirmed(second)
        assert not first.done()
        connection.send("SEND", {}, b"3")
        await connection.confirmed(first)
        connection.abort()


async def test_a_lost_connection_fails_what_is_under_way_and_tells_once() -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer)
        await reader.readuntil(b"\0")

    async with broker(behaviour) as address:
        listener = Listener()
        connection = await listener.connect(address)
        with pytest.raises(BrokerUnavailable):
            await connection.confirmed(connection.request("SEND", {}, b"x"))
        assert isinstance(await listener.lost, BrokerUnavailable)
        with pytest.raises(BrokerUnavailable):
            await connection.request("SEND", {}, b"y")
        await connection.close()


async def test_a_broker_that_does_not_speak_stomp_is_hung_up_on() -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer)
        await reader.readuntil(b"\0")
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n\0")
        await reader.read()

    async with broker(behaviour) as address:
        listener = Listener()
        connection = await listener.connect(address)
        connection.send("SEND", {}, b"x")
        assert isinstance(await listener.lost, MalformedFrame)


async def test_a_connection_lost_in_the_moment_it_is_made_is_told() -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer)
        writer.write(b"nonsense\n\n\0")
        await reader.read()

    async with broker(behaviour) as address:
        with pytest.raises(MalformedFrame, match="nonsense"):
            await Listener().connect(address)


async def test_a_broker_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_connection, "HEART_BEAT_MS", 20)

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer, "20,0")
        await reader.read()

    async with broker(behaviour) as address:
        listener = Listener()
        await listener.connect(address)
        assert "silent" in str(await listener.lost)


async def test_an_idle_connection_sends_heart_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_connection, "PROMISED_HEART_BEAT_MS", 20)
    beats: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer, "0,20")
        beats.set_result(await reader.readexactly(3))
        await reader.read()

    async with broker(behaviour) as address:
        connection = await Listener().connect(address)
        assert await beats == b"\n\n\n"
        connection.abort()


async def test_a_broker_that_gives_no_receipt_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer)
        await reader.read()

    async with broker(behaviour) as address:
        listener = Listener()
        connection = await listener.connect(address)
        monkeypatch.setattr(stomp_connection, "ANSWER_S", 0.05)
        with pytest.raises(BrokerUnavailable, match="no receipt"):
            await connection.confirmed(connection.request("SEND", {}, b"x"))
        assert connection.is_lost

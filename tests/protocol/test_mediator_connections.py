"""The HTTP/1.1 client against endpoints that misbehave, byte by byte."""

import asyncio
import contextlib
import socket

import pytest

from penstock.delivery.http.answer import MAX_HEAD_BYTES
from penstock.delivery.http.request import request_head
from penstock.delivery.http.settings import KEPT_BODY_BYTES, READ_BODY_BYTES, DeliverySettings
from penstock.domain.outcome import MediationOutcome, MediationResult, NetworkError, Timeout
from tests.rigs.http_endpoints import RawServer, answers, mediator_rig, read_request

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
SUCCESS = MediationOutcome(MediationResult.SUCCESS, status=200)


def is_broken(outcome: MediationOutcome) -> bool:
    return outcome.result is MediationResult.ERROR_CONNECTION and isinstance(outcome.error, NetworkError)


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with RawServer(answers(OK)).serving() as server, mediator_rig() as rig:
        for _ in range(5):
            assert await rig.deliver(f"http://127.0.0.1:{server.port}/") == SUCCESS
        assert server.accepted == 1


@pytest.mark.parametrize(
    "pieces",
    [
        (OK,),
        tuple(bytes([byte]) for byte in OK),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\ntrailer: x\r\n\r\n",),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK,),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", OK),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",),
    ],
    ids=["whole", "byte by byte", "chunked", "trailer", "continue", "early hints", "no phrase"],
)
async def test_answers_in_every_form_are_read_and_the_connection_kept(pieces: tuple[bytes, ...]) -> None:
    async with RawServer(answers(*pieces)).serving() as server, mediator_rig() as rig:
        for _ in range(3):
            assert await rig.deliver(f"http://127.0.0.1:{server.port}/") == SUCCESS
        assert server.accepted == 1


@pytest.mark.parametrize(
    "pieces",
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"ack":', b"false}"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"ack":false}',),
        (b'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 13\r\n\r\n{"ack":false}',),
    ],
    ids=["no length", "http 1.0", "close"],
)
async def test_an_answer_that_ends_with_the_connection_is_read_to_its_end(pieces: tuple[bytes, ...]) -> None:
    async with RawServer(answers(*pieces, close=True)).serving() as server, mediator_rig() as rig:
        for _ in range(2):
            assert (await rig.deliver(f"http://127.0.0.1:{server.port}/")).result is MediationResult.ERROR_PROCESS
        assert server.accepted == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nlong: " + b"x" * (2 * MAX_HEAD_BYTES),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000,
        b"\x00" * 1000,
    ],
    ids=[
        "nothing",
        "half a head",
        "half a body",
        "no last chunk",
        "another protocol",
        "negative length",
        "two lengths",
        "length and chunks",
        "no header",
        "upgrade",
        "long header",
        "endless interim answers",
        "many headers",
        "zeros",
    ],
)
async def test_a_broken_answer_is_a_connection_error(answer: bytes) -> None:
    async with RawServer(answers(answer, close=True)).serving() as server, mediator_rig() as rig:
        assert is_broken(await rig.deliver(f"http://127.0.0.1:{server.port}/"))
        assert server.accepted == 1


async def test_an_endless_head_is_cut_off() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nlong: ")
        while True:
            writer.write(b"x" * 1000)
            await writer.drain()

    async with RawServer(talk).serving() as server, mediator_rig() as rig:
        assert is_broken(await rig.deliver(f"http://127.0.0.1:{server.port}/"))


async def test_of_a_long_body_the_beginning_is_kept_and_the_connection_used_again() -> None:
    body = b"x" * (READ_BODY_BYTES // 2)
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    async with RawServer(answers(answer)).serving() as server, mediator_rig() as rig:
        head = request_head(f"http://127.0.0.1:{server.port}/", None)
        for _ in range(2):
            assert (await rig.client.send(head, b"{}")).body == body[:KEPT_BODY_BYTES]
        assert server.accepted == 1


async def test_an_endless_body_is_cut_off_and_its_status_counts() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            await writer.drain()

    async with RawServer(talk).serving() as server, mediator_rig() as rig:
        outcome = await rig.deliver(f"http://127.0.0.1:{server.port}/")
        assert outcome == MediationOutcome(MediationResult.SUCCESS, status=201)
        await server.until_open(0)


async def test_more_than_was_asked_for_is_never_taken_for_the_next_answer() -> None:
    surplus = b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"
    for extra in (surplus, surplus[:20], b"garbage"):
        async with RawServer(answers(OK + extra)).serving() as server, mediator_rig() as rig:
            for _ in range(3):
                assert await rig.deliver(f"http://127.0.0.1:{server.port}/") == SUCCESS
            assert server.accepted == 3


async def test_a_kept_connection_closed_in_the_meantime_costs_no_attempt() -> None:
    seen = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        seen += 1
        writer.close()

    async with RawServer(talk).serving() as server, mediator_rig() as rig:
        url = f"http://127.0.0.1:{server.port}/"
        assert await rig.deliver(url) == SUCCESS
        assert await rig.deliver(url) == SUCCESS
        assert (seen, server.accepted) == (1, 2)


async def test_a_request_is_not_sent_again_once_a_byte_of_the_answer_came() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        writer.write(b"H")
        writer.close()

    async with RawServer(talk).serving() as server, mediator_rig() as rig:
        url = f"http://127.0.0.1:{server.port}/"
        assert await rig.deliver(url) == SUCCESS
        assert is_broken(await rig.deliver(url))
        assert server.accepted == 1


async def test_a_fresh_connection_that_is_closed_is_not_tried_again() -> None:
    async with RawServer(answers(close=True)).serving() as server, mediator_rig() as rig:
        assert is_broken(await rig.deliver(f"http://127.0.0.1:{server.port}/"))
        assert server.accepted == 1


async def test_a_cancelled_delivery_closes_its_connection() -> None:
    arrived = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()

    async with RawServer(talk).serving() as server, mediator_rig() as rig:
        delivery = asyncio.create_task(rig.deliver(f"http://127.0.0.1:{server.port}/"))
        await arrived.wait()
        delivery.cancel()
        await asyncio.gather(delivery, return_exceptions=True)
        assert delivery.cancelled()
        await server.until_open(0)


async def test_a_slow_answer_is_cut_off_at_the_deadline_though_bytes_keep_coming() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with (
        RawServer(talk).serving() as server,
        mediator_rig(DeliverySettings(request_timeout_s=0.3)) as rig,
    ):
        outcome = await rig.deliver(f"http://127.0.0.1:{server.port}/")
        assert outcome == MediationOutcome(MediationResult.ERROR_PROCESS, error=Timeout(0.3))
        await server.until_open(0)


async def test_idle_connections_are_closed_and_the_timer_stops() -> None:
    async with RawServer(answers(OK)).serving() as server, mediator_rig(DeliverySettings(idle_s=0.2)) as rig:
        await asyncio.gather(*(rig.deliver(f"http://127.0.0.1:{server.port}/") for _ in range(20)))
        assert server.accepted > 1
        await server.until_open(0)
        assert await rig.deliver(f"http://127.0.0.1:{server.port}/") == SUCCESS


async def test_old_connections_are_replaced_though_they_are_in_use() -> None:
    settings = DeliverySettings(max_age_s=0.2, idle_s=1)
    async with RawServer(answers(OK)).serving() as server, mediator_rig(settings) as rig:
        async with asyncio.timeout(60):
            while server.accepted < 3:
                assert await rig.deliver(f"http://127.0.0.1:{server.port}/") == SUCCESS
                await asyncio.sleep(0.02)


async def test_no_more_connections_than_allowed_and_everybody_gets_a_turn() -> None:
    most = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        while True:
            await read_request(reader)
            most = max(most, server.open)
            writer.write(OK)

    settings = DeliverySettings(max_connections=3)
    server = RawServer(talk)
    async with server.serving(), mediator_rig(settings) as rig:
        url = f"http://127.0.0.1:{server.port}/"
        outcomes = await asyncio.gather(*(rig.deliver(url, f"m{number}") for number in range(200)))
        assert outcomes == [SUCCESS] * 200
        assert most == server.accepted == 3


async def test_waiting_for_a_connection_counts_towards_the_time_out() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    settings = DeliverySettings(max_connections=1, request_timeout_s=0.3)
    async with RawServer(talk).serving() as server, mediator_rig(settings) as rig:
        url = f"http://127.0.0.1:{server.port}/"
        outcomes = await asyncio.gather(*(rig.deliver(url) for _ in range(5)))
        assert outcomes == [MediationOutcome(MediationResult.ERROR_PROCESS, error=Timeout(0.3))] * 5


async def test_a_cancelled_waiter_passes_its_turn_on() -> None:
    gate = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await gate.wait()
            writer.write(OK)

    async with RawServer(talk).serving() as server, mediator_rig(DeliverySettings(max_connections=1)) as rig:
        url = f"http://127.0.0.1:{server.port}/"
        deliveries = [asyncio.create_task(rig.deliver(url)) for _ in range(6)]
        await server.until_open(1)
        for delivery in deliveries[1:4]:
            delivery.cancel()
        gate.set()
        ends = await asyncio.gather(*deliveries, return_exceptions=True)
        assert [end for end in ends if not isinstance(end, asyncio.CancelledError)] == [SUCCESS] * 3


async def test_an_endpoint_that_never_accepts_is_a_connection_error() -> None:
    with socket.socket() as full, contextlib.ExitStack() as callers:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(5):  # they fill the backlog; the handshake of the next is not answered
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        async with mediator_rig(DeliverySettings(connect_timeout_s=0.2)) as rig:
            outcome = await rig.deliver(f"http://127.0.0.1:{full.getsockname()[1]}/")
            assert outcome == MediationOutcome(MediationResult.ERROR_CONNECTION, error=Timeout(0.2))


async def test_an_endpoint_that_hangs_up_as_soon_as_it_is_called_is_a_connection_error() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with RawServer(talk).serving() as server, mediator_rig() as rig:
        outcomes = await asyncio.gather(*(rig.deliver(f"http://127.0.0.1:{server.port}/") for _ in range(9)))
        assert all(is_broken(outcome) for outcome in outcomes)


async def test_closing_the_client_fails_what_is_under_way_and_hangs_up() -> None:
    arrived = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()

    async with RawServer(talk).serving() as server, mediator_rig() as rig:
        delivery = asyncio.create_task(rig.deliver(f"http://127.0.0.1:{server.port}/"))
        await arrived.wait()
        rig.client.close()
        assert is_broken(await delivery)
        await server.until_open(0)

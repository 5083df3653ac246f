"""Deliveries over TLS: names, certificates, HTTP/1.1 and HTTP/2."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.delivery.egress import SocketAddress
from penstock.delivery.http.http2 import FrameFilter
from penstock.delivery.http.request import request_head
from penstock.delivery.http.settings import KEPT_BODY_BYTES, READ_BODY_BYTES, DeliverySettings
from penstock.domain.outcome import Deferred, MediationOutcome, MediationResult, NetworkError, RateLimited, Timeout
from penstock.domain.pointer import MessagePointer
from penstock.domain.signing import Signature, verify
from penstock.ops.config.router_options import HttpVersion
from tests.rigs.http2_endpoint import Request, Session, http2
from tests.rigs.http_endpoints import RawServer, Rig, Talk, answers, mediator_rig
from tests.rigs.tls import server_context, trusting_context

NAME = "shop.example"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
SUCCESS = MediationOutcome(MediationResult.SUCCESS, status=200)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def to_loopback(host: str, port: int) -> list[SocketAddress]:
    return [("127.0.0.1", port)]


@asynccontextmanager
async def endpoint(
    talk: Talk,
    *protocols: str,
    settings: DeliverySettings | None = None,
    client_tls: ssl.SSLContext | None = None,
    server_tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[RawServer, Rig, str]]:
    """A TLS server under NAME, and a mediator that trusts it."""
    context = server_tls if server_tls is not None else server_context(NAME, *protocols)
    trusting = client_tls if client_tls is not None else trusting_context()
    async with (
        RawServer(talk, context).serving() as server,
        mediator_rig(settings, lookup=to_loopback, tls=trusting) as rig,
    ):
        yield server, rig, f"https://{NAME}:{server.port}/hook"


def is_connection_error(outcome: MediationOutcome) -> bool:
    return outcome.result is MediationResult.ERROR_CONNECTION and isinstance(outcome.error, NetworkError)


async def accept(request: Request) -> None:
    await request.answer(200)


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)], ids=["no alpn", "http/1.1"])
async def test_an_endpoint_without_http2_is_spoken_to_in_http1(protocols: tuple[str, ...]) -> None:
    async with endpoint(answers(OK), *protocols) as (server, rig, url):
        outcomes = await asyncio.gather(*(rig.deliver(url) for _ in range(20)))
        assert outcomes == [SUCCESS] * 20
        accepted = server.accepted
        assert await rig.deliver(url) == SUCCESS
        assert server.accepted == accepted


async def test_the_name_in_the_url_is_asked_for_though_the_address_is_pinned() -> None:
    asked: list[str | None] = []
    context = server_context(NAME, "http/1.1")
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with endpoint(answers(OK), server_tls=context) as (_, rig, url):
        assert await rig.deliver(url) == SUCCESS
        assert await rig.deliver(url.replace(NAME, f"{NAME}.")) == SUCCESS
    assert asked == [NAME, NAME]


async def test_a_certificate_for_another_name_is_a_connection_error() -> None:
    async with endpoint(answers(OK)) as (_, rig, url):
        outcome = await rig.deliver(url.replace(NAME, "other.example"))
        assert is_connection_error(outcome)


async def test_a_certificate_of_an_authority_nobody_trusts_is_a_connection_error() -> None:
    async with endpoint(answers(OK), client_tls=ssl.create_default_context()) as (_, rig, url):
        outcome = await rig.deliver(url)
        assert is_connection_error(outcome)
        assert isinstance(outcome.error, NetworkError)
        assert "CERTIFICATE_VERIFY_FAILED" in outcome.error.detail


async def test_an_endpoint_that_speaks_no_tls_is_a_connection_error() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(OK)

    async with RawServer(talk).serving() as server, mediator_rig(lookup=to_loopback) as rig:
        assert is_connection_error(await rig.deliver(f"https://{NAME}:{server.port}/"))


async def test_all_who_wait_for_the_first_connection_fail_with_it_together() -> None:
    async with endpoint(answers(OK), client_tls=ssl.create_default_context()) as (server, rig, url):
        outcomes = await asyncio.gather(*(rig.deliver(url) for _ in range(8)))
        assert all(is_connection_error(outcome) for outcome in outcomes)
        assert server.accepted <= 1


async def test_http2_is_not_offered_if_the_setting_says_so() -> None:
    settings = DeliverySettings(http_version=HttpVersion.HTTP_1_1)
    async with endpoint(answers(OK), "h2", "http/1.1", settings=settings) as (_, rig, url):
        assert await rig.deliver(url) == SUCCESS


async def test_http2_carries_many_requests_on_one_connection() -> None:
    seen: list[Request] = []

    async def handle(request: Request) -> None:
        seen.append(request)
        number = int(request.message_id.removeprefix("m"))
        await request.answer(200, b'{"ack":false,"delaySeconds":%d}' % (number + 1))

    async with endpoint(http2(handle), "h2", "http/1.1") as (server, rig, url):
        for _ in range(2):
            outcomes = await asyncio.gather(*(rig.deliver(f"{url}?a=b", f"m{n}", "token") for n in range(60)))
            assert [outcome.delay_s for outcome in outcomes] == [n + 1 for n in range(60)]
            assert {outcome.error for outcome in outcomes} == {Deferred()}
        assert server.accepted == 1
        headers = seen[0].headers
        assert headers[":method"] == "POST"
        assert headers[":path"] == "/hook?a=b"
        assert headers[":authority"] == f"{NAME}:{server.port}"
        assert headers["authorization"] == "Bearer token"
        assert headers["content-type"] == headers["accept"] == "application/json"


async def test_http2_requests_are_signed_and_retry_after_is_read() -> None:
    seen: list[Request] = []

    async def handle(request: Request) -> None:
        seen.append(request)
        await request.answer(429, b"", ("retry-after", "17"))

    async with endpoint(http2(handle), "h2") as (_, rig, url):
        outcome = await rig.mediator.attempt(MessagePointer("m1", url, signing_secrets=(SECRET,)), 1)
        assert outcome == MediationOutcome(MediationResult.ERROR_PROCESS, 17, RateLimited(17), 429)
        headers = seen[0].headers
        signature = Signature(headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"])
        assert verify(signature, seen[0].body, [SECRET], rig.clock.now_ms())


async def test_the_endpoints_limit_of_streams_is_kept() -> None:
    under_way = most = 0

    async def handle(request: Request) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        await request.answer(200)

    settings = DeliverySettings(max_connections=1)
    async with endpoint(http2(handle, max_concurrent_streams=3), "h2", settings=settings) as (server, rig, url):
        await rig.deliver(url)
        outcomes = await asyncio.gather(*(rig.deliver(url) for _ in range(40)))
        assert outcomes == [SUCCESS] * 40
        assert (server.accepted, most) == (1, 3)


async def test_more_connections_are_opened_when_one_has_no_room() -> None:
    gate = asyncio.Event()
    arrived = 0

    async def handle(request: Request) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 9:
            gate.set()
        await gate.wait()
        await request.answer(200)

    async with endpoint(http2(handle, max_concurrent_streams=3), "h2") as (server, rig, url):
        outcomes = await asyncio.gather(*(rig.deliver(url) for _ in range(9)))
        assert outcomes == [SUCCESS] * 9
        assert server.accepted >= 3


async def test_a_body_larger_than_the_window_is_sent_as_the_window_opens() -> None:
    bodies: list[bytes] = []

    async def handle(request: Request) -> None:
        bodies.append(request.body)
        await request.answer(200)

    async with endpoint(http2(handle, initial_window_size=100), "h2") as (_, rig, url):
        await rig.deliver(url)
        long_id = "x" * 20_000
        assert await rig.deliver(url, long_id) == SUCCESS
        assert bodies[1] == b'{"messageId":"%b"}' % long_id.encode()


async def test_of_a_long_http2_answer_the_beginning_is_kept() -> None:
    async def handle(request: Request) -> None:
        await request.answer(200, b"x" * 40_000)

    async with endpoint(http2(handle), "h2") as (_, rig, url):
        for _ in range(5):
            answer = await rig.client.send(request_head(url, None), b"{}")
            assert (answer.status, answer.body) == (200, b"x" * 40_000)


async def test_an_endless_http2_answer_is_cut_off_and_the_connection_goes_on() -> None:
    sessions: list[Session] = []

    async def handle(request: Request) -> None:
        if request.headers[":path"] != "/endless":
            await request.answer(200)
            return
        await request.answer(201, b"x" * (2 * READ_BODY_BYTES))

    async with endpoint(http2(handle, sessions), "h2") as (server, rig, url):
        endless = request_head(url.replace("/hook", "/endless"), None)
        answer = await rig.client.send(endless, b"{}")
        assert (answer.status, len(answer.body)) == (201, KEPT_BODY_BYTES)
        assert await rig.deliver(url) == SUCCESS
        assert server.accepted == 1
        assert sessions[0].resets == [1]


async def test_a_graceful_goaway_lets_streams_finish_and_the_rest_go_elsewhere() -> None:
    """What nginx does after a thousand requests on a connection."""
    arrived = asyncio.Event()
    gone = asyncio.Event()
    seen: list[str] = []

    async def handle(request: Request) -> None:
        name = request.message_id
        seen.append(name)
        if name == "first":
            arrived.set()
            await gone.wait()
        await request.answer(200)

    sessions: list[Session] = []
    async with endpoint(http2(handle, sessions), "h2") as (server, rig, url):
        first = asyncio.create_task(rig.deliver(url, "first"))
        await arrived.wait()
        sessions[0].writer.write(goaway(last_stream_id=1))
        await sessions[0].writer.drain()
        while server.accepted == 1:
            assert await rig.deliver(url, "later") == SUCCESS
        gone.set()
        assert await first == SUCCESS
        await server.until_open(1)
        assert await rig.deliver(url, "last") == SUCCESS
        assert server.accepted == 2


async def test_requests_a_goaway_names_as_not_processed_are_sent_again() -> None:
    seen: list[tuple[int, str]] = []

    async def handle(request: Request) -> None:
        name = request.message_id
        connection = sessions.index(request.session)
        seen.append((connection, name))
        if connection == 0 and name != "warm":
            request.session.writer.write(goaway(last_stream_id=1))
            await request.session.writer.drain()
            return
        await request.answer(200)

    sessions: list[Session] = []
    async with endpoint(http2(handle, sessions), "h2") as (_, rig, url):
        assert await rig.deliver(url, "warm") == SUCCESS
        assert await rig.deliver(url, "again") == SUCCESS
        assert seen == [(0, "warm"), (0, "again"), (1, "again")]


async def test_a_refused_stream_is_sent_once_more() -> None:
    seen: list[int] = []

    async def handle(request: Request) -> None:
        seen.append(request.stream_id)
        if len(seen) == 2:
            request.session.h2.reset_stream(request.stream_id, 7)
            await request.session.flush()
        else:
            await request.answer(200)

    async with endpoint(http2(handle), "h2") as (_, rig, url):
        assert await rig.deliver(url) == SUCCESS
        assert await rig.deliver(url) == SUCCESS
        assert len(seen) == 3


async def test_a_stream_that_is_reset_otherwise_is_a_connection_error_and_others_go_on() -> None:
    async def handle(request: Request) -> None:
        if b"bad" in request.body:
            request.session.h2.reset_stream(request.stream_id, 2)
            await request.session.flush()
        else:
            await request.answer(200)

    async with endpoint(http2(handle), "h2") as (server, rig, url):
        await rig.deliver(url)
        bad, good = await asyncio.gather(rig.deliver(url, "bad"), rig.deliver(url, "good"))
        assert is_connection_error(bad)
        assert good == SUCCESS
        assert server.accepted == 1


async def test_an_http2_connection_that_breaks_fails_all_its_requests() -> None:
    arrived = 0

    async def handle(request: Request) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 5:
            request.session.writer.transport.abort()

    async with endpoint(http2(handle), "h2") as (_, rig, url):
        outcomes = await asyncio.gather(*(rig.deliver(url) for _ in range(5)))
        assert all(is_connection_error(outcome) for outcome in outcomes)


async def test_an_endpoint_that_breaks_the_rules_of_http2_is_a_connection_error() -> None:
    async with endpoint(answers(b"HTTP/1.1 400 Bad Request\r\n\r\n", close=True), "h2") as (_, rig, url):
        assert is_connection_error(await rig.deliver(url))


async def test_a_late_http2_answer_times_out_alone() -> None:
    sessions: list[Session] = []

    async def handle(request: Request) -> None:
        if b"slow" not in request.body:
            await request.answer(200)

    settings = DeliverySettings(request_timeout_s=2.0)
    async with endpoint(http2(handle, sessions), "h2", settings=settings) as (server, rig, url):
        outcome = await rig.deliver(url, "slow")
        assert outcome == MediationOutcome(MediationResult.ERROR_PROCESS, error=Timeout(2.0))
        assert await rig.deliver(url) == SUCCESS
        assert server.accepted == 1
        assert sessions[0].resets == [1]


async def test_a_cancelled_http2_delivery_resets_its_stream_only() -> None:
    sessions: list[Session] = []
    arrived = asyncio.Event()

    async def handle(request: Request) -> None:
        if b"slow" in request.body:
            arrived.set()
        else:
            await request.answer(200)

    async with endpoint(http2(handle, sessions), "h2") as (server, rig, url):
        slow = asyncio.create_task(rig.deliver(url, "slow"))
        await arrived.wait()
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert await rig.deliver(url) == SUCCESS
        assert sessions[0].resets == [1]
        assert server.accepted == 1


async def test_idle_http2_connections_are_closed() -> None:
    async with endpoint(http2(accept), "h2", settings=DeliverySettings(idle_s=0.2)) as (server, rig, url):
        assert await rig.deliver(url) == SUCCESS
        await server.until_open(0)


def goaway(last_stream_id: int, error_code: int = 0) -> bytes:
    payload = last_stream_id.to_bytes(4, "big") + error_code.to_bytes(4, "big") + b"bye"
    return len(payload).to_bytes(3, "big") + b"\x07\x00" + bytes(4) + payload


@pytest.mark.parametrize("size", [1, 2, 7, 9, 10, 13, 1000])
def test_a_goaway_is_taken_out_wherever_the_bytes_are_cut(size: int) -> None:
    ping = (8).to_bytes(3, "big") + b"\x06\x00" + bytes(4) + b"12345678"
    data = (5).to_bytes(3, "big") + b"\x00\x01" + (3).to_bytes(4, "big") + b"\x07\x07\x07\x07\x07"
    stream = ping + goaway(2**31 - 1) + data + goaway(5, 2) + ping
    frames = FrameFilter()
    passed, found = b"", []
    for at in range(0, len(stream), size):
        some, goaway_found = frames.feed(stream[at : at + size])
        passed += some
        if goaway_found is not None:
            found.append((goaway_found.last_stream_id, goaway_found.error_code))
    assert passed == ping + data + ping
    assert found[-1] == (5, 2)


async def test_closing_the_client_fails_http2_requests_under_way() -> None:
    arrived = asyncio.Event()

    async def handle(request: Request) -> None:
        arrived.set()

    async with endpoint(http2(handle), "h2") as (server, rig, url):
        delivery = asyncio.create_task(rig.deliver(url))
        await arrived.wait()
        rig.client.close()
        assert is_connection_error(await delivery)
        await server.until_open(0)


async def test_an_endpoint_that_agrees_on_http2_and_says_nothing_is_a_connection_error() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    settings = DeliverySettings(connect_timeout_s=0.3)
    async with endpoint(talk, "h2", settings=settings) as (server, rig, url):
        outcomes = await asyncio.gather(*(rig.deliver(url) for _ in range(5)))
        assert outcomes == [MediationOutcome(MediationResult.ERROR_CONNECTION, error=Timeout(0.3))] * 5
        await server.until_open(0)

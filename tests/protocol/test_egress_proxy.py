"""Deliveries through a proxy: a real one that opens tunnels, in front of endpoints with and without TLS."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import EgressGuard, SocketAddress
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.proxy import is_name, proxy_of
from penstock.delivery.http.settings import DeliverySettings
from penstock.delivery.webhook.courier import Courier, WebhookDelivery
from penstock.delivery.webhook.request import delivery_request
from penstock.domain.event import StoredEvent
from penstock.domain.outcome import EgressDenied, MediationResult, NetworkError
from penstock.domain.subscription import Subscription
from penstock.testing.clock import VirtualClock
from penstock.testing.receiver import RecordingReceiver
from tests.rigs.http2_endpoint import Request, http2
from tests.rigs.http_endpoints import RawServer
from tests.rigs.made_jobs import NOW_MS, dispatch_job
from tests.rigs.tls import server_context, trusting_context

NAME = "shop.example"
EVENT = StoredEvent(id="0HZXEQ5Y8JY00", source="/shop", type="orders:created", received_ms=NOW_MS, data=b'{"total": 7}')


class TunnelProxy:
    """Opens tunnels to ports of this machine, whatever the name."""

    def __init__(
        self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n", credentials: str | None = None
    ) -> None:
        self.asked: list[str] = []
        self._credentials = credentials
        self._answer = answer
        self.server = RawServer(self._talk)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        place = head.split()[1].decode()
        self.asked.append(place)
        answer = self._answer if self._lets_in(head.decode()) else b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
        writer.write(answer)
        if b" 200 " not in answer:
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", int(place.rpartition(":")[2]))
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            back.close()

    def _lets_in(self, head: str) -> bool:
        if self._credentials is None:
            return "proxy-authorization" not in head.lower()
        pair = b64encode(self._credentials.encode()).decode()
        return f"\r\nProxy-Authorization: Basic {pair}\r\n" in head


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while part := await reader.read(65_536):
            writer.write(part)
    writer.close()


def never(host: str, port: int) -> list[SocketAddress]:
    raise OSError(f"{host} must not be looked up here")


@asynccontextmanager
async def courier_at(port: int, *allowed: str, credentials: str = "") -> AsyncIterator[Courier]:
    clock = VirtualClock(NOW_MS)
    guard = EgressGuard(tuple(ip_network(each) for each in allowed), lookup=never if not allowed else _as_it_is)
    async with HttpClient(
        guard, DeliverySettings(proxy=f"http://{credentials}127.0.0.1:{port}"), trusting_context()
    ) as client:
        yield Courier(client, Breakers(clock), clock)
    guard.close()


def _as_it_is(host: str, port: int) -> list[SocketAddress]:
    return [(host, port)]


async def deliver(courier: Courier, target: str) -> WebhookDelivery:
    subscription = Subscription(id="s", name="billing", pattern="**", target=target)
    job = dispatch_job(event_id=EVENT.id, subscription_id="s", target=target)
    return await courier.deliver(delivery_request(job, EVENT, subscription, NOW_MS))


async def test_a_name_is_reached_through_the_proxy_which_looks_it_up() -> None:
    proxy = TunnelProxy()
    async with RecordingReceiver() as receiver, proxy.server.serving(), courier_at(proxy.server.port) as courier:
        port = receiver.url.rpartition(":")[2].strip("/")
        delivery = await deliver(courier, f"http://{NAME}:{port}/hook")
        assert (await deliver(courier, f"http://{NAME}:{port}/hook")).outcome.result is MediationResult.SUCCESS
    assert delivery.outcome.result is MediationResult.SUCCESS
    assert [request.path for request in receiver.requests] == ["/hook", "/hook"]
    # One tunnel serves several deliveries.
    assert proxy.asked == [f"{NAME}:{port}"]


async def test_the_certificate_is_that_of_the_name_behind_the_proxy() -> None:
    requests: list[Request] = []

    async def accept(request: Request) -> None:
        requests.append(request)
        await request.answer(200)

    proxy = TunnelProxy()
    async with (
        RawServer(http2(accept), server_context(NAME, "h2")).serving() as endpoint,
        proxy.server.serving(),
        courier_at(proxy.server.port) as courier,
    ):
        right = await deliver(courier, f"https://{NAME}:{endpoint.port}/hook")
        wrong = await deliver(courier, f"https://other.example:{endpoint.port}/hook")
    assert right.outcome.result is MediationResult.SUCCESS
    assert isinstance(wrong.outcome.error, NetworkError)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "it answered 403"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"", "not HTTP"),
    ],
)
async def test_a_proxy_that_refuses_is_a_failure_that_says_so(answer: bytes, words: str) -> None:
    proxy = TunnelProxy(answer)
    async with proxy.server.serving(), courier_at(proxy.server.port) as courier:
        delivery = await deliver(courier, f"https://{NAME}/hook")
    assert isinstance(delivery.outcome.error, NetworkError)
    assert words in str(delivery.outcome.error)


@pytest.mark.parametrize(
    ("expected", "given"),
    [("penstock:hunter2", "penstock:hunter2@"), ("a@b:p/w %", "a%40b:p%2Fw%20%25@"), ("a:", "a@")],
)
async def test_a_proxy_gets_the_user_name_and_password_of_its_url(expected: str, given: str) -> None:
    proxy = TunnelProxy(credentials=expected)
    async with RecordingReceiver() as receiver, proxy.server.serving():
        port = receiver.url.rpartition(":")[2].strip("/")
        async with courier_at(proxy.server.port, credentials=given) as courier:
            delivery = await deliver(courier, f"http://{NAME}:{port}/hook")
        assert delivery.outcome.result is MediationResult.SUCCESS
        # They are the proxy's, not the endpoint's.
        assert "proxy-authorization" not in receiver.requests[0].headers


@pytest.mark.parametrize(
    ("given", "words"), [("", "it needs a user name and a password"), ("a:wrong@", "does not accept")]
)
async def test_a_proxy_that_lets_no_one_in_is_a_failure_that_names_the_setting(given: str, words: str) -> None:
    proxy = TunnelProxy(credentials="penstock:hunter2")
    async with proxy.server.serving(), courier_at(proxy.server.port, credentials=given) as courier:
        delivery = await deliver(courier, f"https://{NAME}/hook")
    assert isinstance(delivery.outcome.error, NetworkError)
    assert words in delivery.outcome.error.detail
    assert "egress.proxy" in delivery.outcome.error.detail
    assert "wrong" not in delivery.outcome.error.detail


def test_the_password_of_a_proxy_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_EGRESS__PROXY", "http://penstock:hunter2@proxy.example:3128")
    shown = CliRunner().invoke(app, ["config", "show"], prog_name="penstock")
    assert "http://penstock:***@proxy.example:3128" in shown.output
    assert "hunter2" not in shown.output
    monkeypatch.setenv("PENSTOCK_EGRESS__PROXY", "http://penstock:hunter2@proxy.example")
    refused = CliRunner().invoke(app, ["config", "show"], prog_name="penstock")
    assert "http://USER:PASSWORD@HOST:PORT" in refused.output
    assert "hunter2" not in refused.output
    assert "hunter2" not in repr(proxy_of("http://penstock:hunter2@proxy.example:3128"))


async def test_an_address_is_checked_and_connected_to_directly() -> None:
    proxy = TunnelProxy()
    async with RecordingReceiver() as receiver, proxy.server.serving():
        async with courier_at(proxy.server.port, "127.0.0.0/8") as courier:
            delivery = await deliver(courier, receiver.url)
            assert delivery.outcome.result is MediationResult.SUCCESS
        async with courier_at(proxy.server.port, "10.0.0.0/8") as courier:
            refused = await deliver(courier, receiver.url)
            assert isinstance(refused.outcome.error, EgressDenied)
    assert proxy.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "10.0.0.1.", "::1"])
def test_an_address_in_any_spelling_is_no_name(host: str) -> None:
    assert not is_name(host)
    assert not is_name("localhost")
    assert is_name("shop.example")
    assert is_name("1a.example.")

"""Deliveries to endpoints that ask for a client certificate, over TLS with certificates of our own."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import EgressGuard
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.settings import DeliverySettings
from penstock.delivery.webhook.certificates import CertifiedClients, checked_certificate
from penstock.delivery.webhook.courier import Courier, WebhookDelivery
from penstock.delivery.webhook.request import delivery_request
from penstock.domain.errors import InvalidArgument
from penstock.domain.outcome import EgressDenied, MediationResult, NetworkError
from penstock.domain.subscription import CertificateWithKey, Subscription
from penstock.testing.clock import VirtualClock
from tests.rigs.dispatch import dispatch_rig
from tests.rigs.http_endpoints import RawServer
from tests.rigs.job_database import Connect
from tests.rigs.made_jobs import NOW_MS, dispatch_job
from tests.rigs.tls import authority_pem, certificate_and_key, server_context, trusting_context

NAME = "shop.example"
V1 = "/api/v1"


def certificate(name: str) -> CertificateWithKey:
    public, private = certificate_and_key(name)
    return CertificateWithKey(public.decode(), private.decode())


class Endpoint:
    """Answers over HTTP/1.1 whom our authority vouches for, and notes the names, a connection each."""

    def __init__(self) -> None:
        tls = server_context(NAME, "http/1.1")
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(cadata=authority_pem().decode())
        self.names: list[str] = []
        self.server = RawServer(self._talk, tls)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert")
        self.names.append(shown["subject"][0][0][1])
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()


@asynccontextmanager
async def courier() -> AsyncIterator[Courier]:
    clock = VirtualClock(NOW_MS)
    guard = EgressGuard((ip_network("127.0.0.0/8"),), lookup=lambda host, port: [("127.0.0.1", port)])
    settings = DeliverySettings()
    async with HttpClient(guard, settings, trusting_context()) as client:
        certified = CertifiedClients(lambda tls: HttpClient(guard, settings, tls), trusting_context)
        made = Courier(client, Breakers(clock), clock, certified=certified)
        yield made
        made.close()
    guard.close()


async def deliver(by: Courier, port: int, shown: CertificateWithKey | None) -> WebhookDelivery:
    target = f"https://{NAME}:{port}/hook"
    subscription = Subscription(id="s", name="n", pattern="**", target=target, client_certificate=shown)
    return await by.deliver(delivery_request(dispatch_job(target=target), None, subscription, NOW_MS))


async def test_an_endpoint_sees_the_certificate_of_each_subscription() -> None:
    endpoint, ours, theirs = Endpoint(), certificate("ours"), certificate("theirs")
    async with endpoint.server.serving() as server, courier() as by:
        for shown in (ours, theirs, ours, theirs):
            assert (await deliver(by, server.port, shown)).outcome.result is MediationResult.SUCCESS
    # A connection is kept for the certificate that opened it, and for no other.
    assert endpoint.names == ["ours", "theirs"]


async def test_without_the_certificate_there_is_no_delivery() -> None:
    endpoint = Endpoint()
    async with endpoint.server.serving() as server, courier() as by:
        delivery = await deliver(by, server.port, None)
    assert isinstance(delivery.outcome.error, NetworkError)
    assert endpoint.names == []


async def test_a_certificate_that_was_damaged_is_a_reason_and_not_an_exception() -> None:
    async with courier() as by:
        delivery = await deliver(by, 1, CertificateWithKey("x", "y"))
    assert isinstance(delivery.outcome.error, EgressDenied)
    assert "the client certificate cannot be used" in delivery.outcome.error.detail


def test_the_private_key_is_in_no_repr() -> None:
    assert "PRIVATE" not in repr(certificate("ours"))


# Through the API


def with_passphrase() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    encrypted = serialization.BestAvailableEncryption(b"secret")
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encrypted).decode()


def body_of(shown: CertificateWithKey, **fields: Any) -> dict[str, Any]:
    pem = {"certificate": shown.certificate, "privateKey": shown.private_key}
    return {"name": "erp", "pattern": "**", "target": "https://erp.example/", "clientCertificate": pem, **fields}


async def test_a_certificate_is_shown_without_its_key_and_removed_with_null(connect: Connect) -> None:
    ours = certificate("ours")
    async with dispatch_rig(connect()) as rig:
        made = await rig.ask("POST", f"{V1}/subscriptions", body_of(ours))
        assert made.status == 200, made
        view = made.body["subscription"]
        assert view["clientCertificate"]["subject"] == "CN=ours"
        assert view["clientCertificate"]["expiresAt"].startswith("20")
        path = f"{V1}/subscriptions/{view['id']}"
        renamed = await rig.ask("PATCH", path, {"name": "erp 2"})
        assert renamed.body["clientCertificate"] == view["clientCertificate"]
        assert (await rig.repository.get_subscription(view["id"])).client_certificate == ours
        seen = [made.body, (await rig.ask("GET", path)).body, (await rig.ask("GET", f"{V1}/changes")).body]
        assert "PRIVATE KEY" not in str(seen)
        in_clear = await rig.ask("PATCH", path, {"target": "http://erp.example/"})
        assert (in_clear.status, "https://" in in_clear.body["detail"]) == (400, True)
        removed = await rig.ask("PATCH", path, {"clientCertificate": None})
        assert removed.body["clientCertificate"] is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (CertificateWithKey("no PEM", certificate("a").private_key), "is not PEM"),
        (CertificateWithKey(certificate("a").certificate, "no PEM"), "cannot be used: it is not PEM"),
        (CertificateWithKey(certificate("a").certificate, certificate("b").private_key), "belongs to another"),
        (CertificateWithKey(certificate("a").certificate, with_passphrase()), "has a passphrase"),
    ],
)
async def test_what_cannot_work_is_refused(connect: Connect, given: CertificateWithKey, words: str) -> None:
    async with dispatch_rig(connect()) as rig:
        answer = await rig.ask("POST", f"{V1}/subscriptions", body_of(given))
    assert answer.status == 400
    assert words in answer.body["detail"]


def test_a_certificate_that_has_expired_is_refused() -> None:
    later_ms = 4_000_000_000_000
    with pytest.raises(InvalidArgument, match="of CN=ours expired at 20"):
        checked_certificate(certificate("ours"), later_ms)

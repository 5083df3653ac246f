"""The courier against endpoints of its own kind: HTTP/2, breakers, and answers of all sorts."""

import asyncio
from ipaddress import ip_network

from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import EgressGuard
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.settings import DeliverySettings
from penstock.delivery.webhook.courier import Courier
from penstock.delivery.webhook.request import delivery_request
from penstock.domain.event import StoredEvent
from penstock.domain.outcome import CircuitOpen, MediationResult, NetworkError, Timeout
from penstock.domain.signing import Signature, verify
from penstock.domain.subscription import Subscription
from penstock.testing.clock import VirtualClock
from penstock.testing.receiver import Ending, RecordingReceiver, Reply
from tests.rigs.http2_endpoint import Request, http2
from tests.rigs.http_endpoints import RawServer
from tests.rigs.made_jobs import NOW_MS, dispatch_job
from tests.rigs.tls import server_context, trusting_context

NAME = "shop.example"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LOOPBACK = (ip_network("127.0.0.0/8"),)
EVENT = StoredEvent(id="0HZXEQ5Y8JY00", source="/shop", type="orders:created", received_ms=NOW_MS, data=b'{"total": 7}')
SUBSCRIPTION = Subscription(
    id="s", name="billing", pattern="**", target="https://a.example/", secrets=(SECRET,), headers={"x-team": "billing"}
)


async def test_a_signed_event_travels_over_http2() -> None:
    requests: list[Request] = []

    async def accept(request: Request) -> None:
        requests.append(request)
        await request.answer(200)

    clock = VirtualClock(NOW_MS)
    guard = EgressGuard(LOOPBACK, lookup=lambda host, port: [("127.0.0.1", port)])
    async with (
        RawServer(http2(accept), server_context(NAME, "h2")).serving() as server,
        HttpClient(guard, DeliverySettings(), trusting_context()) as client,
    ):
        courier = Courier(client, Breakers(clock), clock)
        job = dispatch_job(event_id=EVENT.id, subscription_id="s", target=f"https://{NAME}:{server.port}/hook?a=b")
        delivery = await courier.deliver(delivery_request(job, EVENT, SUBSCRIPTION, NOW_MS))
    guard.close()

    assert delivery.outcome.result is MediationResult.SUCCESS
    (request,) = requests
    assert request.headers[":path"] == "/hook?a=b"
    assert request.headers["x-team"] == "billing"
    assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    assert verify(Signature(*(request.headers[name] for name in names)), request.body, [SECRET], NOW_MS)


async def test_what_a_subscriber_does_wrong_is_told_and_nothing_is_raised() -> None:
    clock = VirtualClock(NOW_MS)
    guard = EgressGuard(LOOPBACK)
    async with RecordingReceiver() as receiver, HttpClient(guard, DeliverySettings()) as client:
        receiver.script(Reply(ending=Ending.CUT), Reply(ending=Ending.HANG), Reply(200, b"\xff" * 5000))
        courier = Courier(client, Breakers(clock), clock)
        hasty = Subscription(id="s", name="n", pattern="**", target=receiver.url, timeout_s=2.0)
        job = dispatch_job(target=receiver.url)
        patient, impatient = (delivery_request(job, None, whose, NOW_MS) for whose in (None, hasty))
        cut, hung, odd = [await courier.deliver(each) for each in (patient, impatient, patient)]
    guard.close()

    assert isinstance(cut.outcome.error, NetworkError)
    assert hung.outcome.error == Timeout(2.0)
    assert odd.outcome.result is MediationResult.SUCCESS
    assert odd.response == "\N{REPLACEMENT CHARACTER}" * 2000


async def test_a_delivery_that_is_cancelled_gives_its_probe_back() -> None:
    clock = VirtualClock(NOW_MS)
    guard = EgressGuard(LOOPBACK)
    async with RecordingReceiver(Reply(500)) as receiver, HttpClient(guard, DeliverySettings()) as client:
        courier = Courier(client, Breakers(clock), clock)
        request = delivery_request(dispatch_job(target=receiver.url), None, None, NOW_MS)
        for _ in range(10):
            await courier.deliver(request)
        assert (await courier.deliver(request)).outcome.error == CircuitOpen(f"{receiver.url}/", 5)
        clock.advance(5)
        receiver.script(*[Reply(ending=Ending.HANG)] * 3)
        probes = [asyncio.create_task(courier.deliver(request)) for _ in range(3)]
        await receiver.received(13)
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

        receiver.script(Reply())
        delivery = await courier.deliver(request)
    guard.close()

    assert delivery.outcome.result is MediationResult.SUCCESS

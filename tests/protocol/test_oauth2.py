"""Deliveries with OAuth2 tokens: an issuer and endpoints of our own, through the courier and through the API."""

import asyncio
import re
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from urllib.parse import parse_qs, unquote_plus

import msgspec
import pytest

from penstock.delivery.breakers import Breakers
from penstock.delivery.egress import EgressGuard
from penstock.delivery.http.client import HttpClient
from penstock.delivery.http.settings import DeliverySettings
from penstock.delivery.webhook.courier import Courier, WebhookDelivery
from penstock.delivery.webhook.oauth2 import Token
from penstock.delivery.webhook.request import delivery_request
from penstock.domain.outcome import CircuitOpen, MediationResult, NetworkError
from penstock.domain.subscription import OAuth2Client, Subscription
from penstock.testing.clock import VirtualClock
from penstock.testing.receiver import Ending, RecordingReceiver, Reply
from tests.rigs.dispatch import dispatch_rig
from tests.rigs.job_database import Connect
from tests.rigs.made_jobs import NOW_MS, dispatch_job

LOOPBACK = "127.0.0.0/8"
CLIENT_SECRET = "hunter2:&hunter2"
V1 = "/api/v1"


def issued(token: str, expires_in: int | None = 3600) -> Reply:
    life = {} if expires_in is None else {"expires_in": expires_in}
    return Reply(body=msgspec.json.encode({"access_token": token, "token_type": "Bearer", **life}))


class Place:
    """A courier, an endpoint, and an issuer of tokens."""

    def __init__(self, courier: Courier, clock: VirtualClock, issuer: RecordingReceiver) -> None:
        self.courier = courier
        self.clock = clock
        self.issuer = issuer
        self.endpoint = RecordingReceiver()

    async def deliver(self, **fields: str) -> WebhookDelivery:
        oauth2 = OAuth2Client(token_url=f"{self.issuer.url}/token", client_id="a b", client_secret=CLIENT_SECRET)
        subscription = Subscription(
            id="s",
            name="billing",
            pattern="**",
            target=self.endpoint.url,
            headers={"authorization": "Basic old"},
            timeout_s=10,
            oauth2=msgspec.structs.replace(oauth2, **fields),
        )
        job = dispatch_job(subscription_id="s", target=self.endpoint.url)
        return await self.courier.deliver(delivery_request(job, None, subscription, NOW_MS))

    @property
    def shown(self) -> list[str]:
        """What the endpoint was shown."""
        return [request.headers["authorization"] for request in self.endpoint.requests]


@asynccontextmanager
async def place(*replies: Reply, allowed: str = LOOPBACK) -> AsyncIterator[Place]:
    clock = VirtualClock(NOW_MS)
    guard = EgressGuard((ip_network(allowed),))
    issuer = RecordingReceiver(replies[-1])
    issuer.script(*replies[:-1])
    async with issuer, HttpClient(guard, DeliverySettings()) as client:
        made = Place(Courier(client, Breakers(clock), clock), clock, issuer)
        async with made.endpoint:
            yield made
        made.courier.close()
    guard.close()


async def test_a_token_is_fetched_once_for_all_deliveries() -> None:
    async with place(issued("t1")) as here:
        deliveries = await asyncio.gather(*(here.deliver() for _ in range(10)))
        deliveries.append(await here.deliver())
    assert {each.outcome.result for each in deliveries} == {MediationResult.SUCCESS}
    assert here.shown == ["Bearer t1"] * 11
    (asked,) = here.issuer.requests
    scheme, pair = asked.headers["authorization"].split()
    assert scheme == "Basic"
    assert [unquote_plus(part) for part in b64decode(pair).decode().split(":")] == ["a b", CLIENT_SECRET]
    assert parse_qs(asked.body.decode()) == {"grant_type": ["client_credentials"]}
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_each_scope_and_audience_has_its_token() -> None:
    async with place(issued("t1"), issued("t2"), issued("t3")) as here:
        for fields in ({"scope": "events write"}, {"audience": "erp"}, {"client_secret": "other"}):
            await here.deliver(**fields)
        await here.deliver(scope="events write")
    assert here.shown == ["Bearer t1", "Bearer t2", "Bearer t3", "Bearer t1"]
    bodies = [parse_qs(request.body.decode()) for request in here.issuer.requests]
    assert [bodies[0]["scope"], bodies[1]["audience"]] == [["events write"], ["erp"]]


@pytest.mark.parametrize(("expires_in", "renewed_after_s"), [(3600, 3570), (60, 54), (None, 270)])
async def test_a_token_is_renewed_before_it_expires(expires_in: int | None, renewed_after_s: int) -> None:
    async with place(issued("t1", expires_in), issued("t2")) as here:
        await here.deliver()
        here.clock.advance(renewed_after_s - 1)
        await here.deliver()
        here.clock.advance(1)
        await here.deliver()
    assert here.shown == ["Bearer t1", "Bearer t1", "Bearer t2"]


async def test_a_token_that_the_endpoint_refuses_is_renewed_within_the_attempt() -> None:
    async with place(issued("t1"), issued("t2")) as here:
        here.endpoint.script(Reply(), Reply(401))
        assert (await here.deliver()).outcome.result is MediationResult.SUCCESS
        assert (await here.deliver()).outcome.result is MediationResult.SUCCESS
    assert here.shown == ["Bearer t1", "Bearer t1", "Bearer t2"]


async def test_an_endpoint_that_accepts_no_token_is_asked_twice_and_not_for_ever() -> None:
    async with place(issued("t1"), issued("t2"), Reply(503)) as here:
        here.endpoint.script(Reply(401), Reply(401, b"who?"))
        delivery = await here.deliver()
        assert (delivery.outcome.status, delivery.response) == (401, "who?")
        assert here.shown == ["Bearer t1", "Bearer t2"]


async def test_what_the_endpoint_said_is_reported_when_there_is_no_second_token() -> None:
    async with place(issued("t1"), Reply(503)) as here:
        here.endpoint.script(Reply(401, b"expired"))
        delivery = await here.deliver()
    assert (delivery.outcome.status, delivery.response) == (401, "expired")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(401, b'{"error":"invalid_client"}'), r"answered 401 \(invalid_client\)"),
        (Reply(503, b"<html>"), "answered 503"),
        (Reply(302, headers=(("location", "http://127.0.0.1/"),)), "answered 302"),
        (Reply(body=b"<html>"), "not that of an OAuth2 token endpoint"),
        (Reply(body=b'{"access_token":"t","expires_in":"soon"}'), "not that of an OAuth2 token endpoint"),
        (Reply(body=b'{"access_token":"t","token_type":"mac"}'), "'mac' cannot be sent as a bearer token"),
        (Reply(body=b'{"access_token":"a\\r\\nx: y"}'), "cannot be sent as a bearer token"),
        (Reply(ending=Ending.CUT), "no OAuth2 token from http"),
    ],
)
async def test_without_a_token_nothing_is_sent_and_the_reason_is_said(reply: Reply, words: str) -> None:
    async with place(reply) as here:
        delivery = await here.deliver()
        assert here.endpoint.requests == []
        (endpoint_breaker,) = here.courier.breakers.views()
    assert isinstance(delivery.outcome.error, NetworkError)
    detail = delivery.outcome.error.detail
    assert detail.startswith(f"no OAuth2 token from {here.issuer.url}/token: ")
    assert re.search(words, detail), detail
    assert "hunter2" not in detail
    # The issuer's: the endpoint's own does not suffer.
    assert endpoint_breaker.endpoint == f"{here.issuer.url}/token"


async def test_an_issuer_that_hangs_takes_no_more_than_the_time_of_the_delivery() -> None:
    async with place(Reply(ending=Ending.HANG)) as here:
        subscription_timeout_s = 0.2
        oauth2 = OAuth2Client(token_url=here.issuer.url, client_id="a", client_secret="b")
        subscription = Subscription(
            id="s", name="n", pattern="**", target=here.endpoint.url, timeout_s=subscription_timeout_s, oauth2=oauth2
        )
        job = dispatch_job(target=here.endpoint.url)
        delivery = await here.courier.deliver(delivery_request(job, None, subscription, NOW_MS))
    assert delivery.outcome.error == NetworkError("no OAuth2 token within 0.2 s")


async def test_an_issuer_that_fails_all_the_time_is_left_alone() -> None:
    async with place(Reply(500)) as here:
        for _ in range(10):
            await here.deliver()
        delivery = await here.deliver()
        assert isinstance(delivery.outcome.error, CircuitOpen)
        assert delivery.outcome.error.endpoint == f"{here.issuer.url}/token"
        assert len(here.issuer.requests) == 10


async def test_the_egress_guard_is_in_front_of_the_issuer() -> None:
    async with place(issued("t1"), allowed="10.0.0.0/8") as here:
        delivery = await here.deliver()
    assert here.issuer.requests == []
    assert "may not be reached" in str(delivery.outcome.error)


def test_neither_a_secret_nor_a_token_is_in_a_repr() -> None:
    client = OAuth2Client(token_url="https://id.example/token", client_id="a", client_secret=CLIENT_SECRET)
    assert CLIENT_SECRET not in repr(client)
    assert "t1" not in repr(Token("t1", 0))


# Through the API


async def test_the_secret_is_shown_to_no_one_and_kept_by_its_mask(connect: Connect) -> None:
    async with RecordingReceiver(issued("t1")) as issuer, dispatch_rig(connect()) as rig:
        oauth2 = {
            "tokenUrl": f"{issuer.url}/token",
            "clientId": "penstock",
            "clientSecret": CLIENT_SECRET,
            "scope": "e",
        }
        subscription_id, _ = await rig.subscribe(oauth2=oauth2)
        path = f"{V1}/subscriptions/{subscription_id}"
        await rig.publish()
        await rig.dispatch_all()
        assert rig.receiver.requests[-1].headers["authorization"] == "Bearer t1"
        assert (await rig.ask("POST", f"{path}/test")).body["delivered"]
        assert rig.receiver.requests[-1].headers["authorization"] == "Bearer t1"

        masked = {**oauth2, "clientSecret": "***", "audience": ""}
        shown = (await rig.ask("GET", path)).body["oauth2"]
        assert shown == masked
        changed = await rig.ask("PATCH", path, {"oauth2": {**shown, "scope": "f"}})
        assert changed.body["oauth2"]["scope"] == "f"
        kept = (await rig.repository.get_subscription(subscription_id)).oauth2
        assert kept is not None
        assert (kept.client_secret, kept.scope) == (CLIENT_SECRET, "f")
        elsewhere = await rig.ask("PATCH", path, {"oauth2": {**shown, "tokenUrl": "https://thief.example/token"}})
        assert (elsewhere.status, "give oauth2.clientSecret" in elsewhere.body["detail"]) == (400, True)
        seen = [changed.body, *[(await rig.ask("GET", f"{V1}/{name}")).body for name in ("subscriptions", "changes")]]
        assert "hunter2" not in str(seen)

        assert (await rig.ask("PATCH", path, {"oauth2": None})).body["oauth2"] is None
        await rig.publish(2)
        await rig.dispatch_all()
        assert "authorization" not in rig.receiver.requests[-1].headers


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target": "topic:orders"}, "a target that is a URL"),
        ({"headers": {"Authorization": "x"}}, "leave one of the two out"),
        ({"oauth2": {"tokenUrl": "nowhere", "clientId": "a", "clientSecret": "b"}}, "oauth2.tokenUrl is not a URL"),
        ({"oauth2": {"tokenUrl": "https://id.example", "clientId": "a", "clientSecret": "***"}}, "give oauth2.clientS"),
        ({"oauth2": {"tokenUrl": "https://u:p@id.example", "clientId": "a", "clientSecret": "b"}}, "a user name"),
        (
            {"oauth2": {"tokenUrl": "https://id.example", "clientId": "a", "clientSecret": "sealed:v1:x"}},
            "must not begin",
        ),
    ],
)
async def test_what_cannot_work_is_refused(connect: Connect, fields: dict[str, object], words: str) -> None:
    usual = {"oauth2": {"tokenUrl": "https://id.example/token", "clientId": "a", "clientSecret": "b"}}
    body = {"name": "billing", "pattern": "**", "target": "https://a.example/", **usual, **fields}
    async with dispatch_rig(connect()) as rig:
        answer = await rig.ask("POST", f"{V1}/subscriptions", body)
    assert answer.status == 400
    assert words in answer.body["detail"]

"""Push subscriptions set up with Google's client, delivered to a real receiver."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.api_core.exceptions import FailedPrecondition

from penstock.testing.receiver import Ending, RecordedRequest, RecordingReceiver, Reply
from tests.protocol.pubsub_rig import Rig, bodies
from tests.rigs.penstock_process import wait_until
from tests.services.pubsub_server import PubsubServer, clients_of, running

WITHIN_S = 60.0
KEYS = ("a", "b", "c")


def payload(request: RecordedRequest) -> Any:
    """The JSON of a wrapped push."""
    return msgspec.json.decode(request.body)


def data(request: RecordedRequest) -> str:
    """What was published."""
    return base64.b64decode(payload(request)["message"]["data"]).decode()


@pytest.fixture(scope="module")
def push_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubsubServer]:
    """A server in memory that may push to loopback."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_EGRESS__ALLOW", "127.0.0.0/8")
        with running(tmp_path_factory.mktemp("pubsub-push"), "--memory") as server:
            yield server


@pytest.fixture(scope="module")
def push_clients(push_server: PubsubServer) -> Iterator[Any]:
    with clients_of(push_server) as clients:
        yield clients


@pytest.fixture
def rig(push_clients: Any) -> Iterator[Rig]:
    with ExitStack() as clean_up:
        yield Rig(push_clients, clean_up)


@pytest.fixture
async def receiver() -> AsyncIterator[RecordingReceiver]:
    async with RecordingReceiver() as receiver:
        yield receiver


async def test_a_push_subscription_is_posted_to_and_acked_by_the_answer(
    rig: Rig, receiver: RecordingReceiver, push_server: PubsubServer
) -> None:
    topic = rig.topic()
    push = {"push_endpoint": f"{receiver.url}/in?token=1", "oidc_token": {"service_account_email": "a@b.example"}}
    subscription = rig.subscription(topic, push_config=push)
    [message_id] = await asyncio.to_thread(rig.publish, topic, "hello", kind="order")

    [request] = await receiver.received(1, WITHIN_S)
    assert (request.method, request.path) == ("POST", "/in?token=1")
    assert "authorization" not in request.headers
    got = payload(request)
    assert got["subscription"] == subscription
    assert got["message"]["messageId"] == message_id
    assert got["message"]["attributes"] == {"kind": "order"}
    assert data(request) == "hello"
    shown = rig.subscriber.get_subscription(subscription=subscription)
    assert shown.push_config.oidc_token.service_account_email == "a@b.example"

    line = f'pubsub_pushes_total{{outcome="acked",subscription="{subscription}"}} 1.0'
    await asyncio.to_thread(wait_until, lambda: line in push_server.get("/metrics"))
    metrics = push_server.get("/metrics")
    assert f'pubsub_pushes_outstanding{{subscription="{subscription}"}} 0.0' in metrics
    assert f'pubsub_push_seconds_count{{subscription="{subscription}"}} 1.0' in metrics


async def test_keys_are_pushed_in_order_while_the_endpoint_fails_at_times(
    rig: Rig, receiver: RecordingReceiver
) -> None:
    topic = rig.topic()
    rig.subscription(topic, push_config={"push_endpoint": receiver.url}, enable_message_ordering=True)
    receiver.script(Reply(200), Reply(500), Reply(200), Reply(ending=Ending.CUT, status=500), Reply(404))
    for key in ("a", "b"):
        await asyncio.to_thread(rig.publish, topic, *[f"{key}{number}" for number in range(10)], key=key)

    requests = await receiver.received(23, WITHIN_S)
    for key in ("a", "b"):
        came = [data(request) for request in requests if payload(request)["message"]["orderingKey"] == key]
        assert list(dict.fromkeys(came)) == [f"{key}{number}" for number in range(10)]


async def test_dead_letters_leave_after_their_attempts_which_the_endpoint_is_told(
    rig: Rig, receiver: RecordingReceiver
) -> None:
    topic, dead_topic = rig.topic(), rig.topic()
    dead = rig.subscription(dead_topic)
    rig.subscription(
        topic,
        push_config={"push_endpoint": receiver.url},
        dead_letter_policy={"dead_letter_topic": dead_topic, "max_delivery_attempts": 5},
        retry_policy={"minimum_backoff": {"seconds": 0}, "maximum_backoff": {"seconds": 0}},
    )
    receiver.script(*[Reply(400)] * 5)
    await asyncio.to_thread(rig.publish, topic, "poison")
    received = await asyncio.to_thread(rig.pull, dead, 1)
    assert bodies(received) == ["poison"]
    assert [payload(request)["deliveryAttempt"] for request in receiver.requests] == [1, 2, 3, 4, 5]


async def test_a_bare_push_has_the_data_as_its_body_and_metadata_as_headers(
    rig: Rig, receiver: RecordingReceiver
) -> None:
    topic = rig.topic()
    push = {"push_endpoint": receiver.url, "no_wrapper": {"write_metadata": True}}
    subscription = rig.subscription(topic, push_config=push)
    attributes = {"Content-Type": "text/plain"}
    [message_id] = await asyncio.to_thread(rig.publish, topic, "hello", **attributes)
    [request] = await receiver.received(1, WITHIN_S)
    assert request.body == b"hello"
    assert request.headers["content-type"] == "text/plain"
    assert request.headers["x-goog-pubsub-message-id"] == message_id
    assert request.headers["x-goog-pubsub-subscription-name"] == subscription


async def test_modify_push_config_switches_between_push_and_pull_at_once(rig: Rig, receiver: RecordingReceiver) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    stream = rig.subscriber.subscribe(subscription, callback=lambda message: message.nack())
    waiting = asyncio.create_task(
        asyncio.to_thread(rig.subscriber.pull, subscription=subscription, max_messages=1, timeout=WITHIN_S)
    )
    await asyncio.to_thread(
        rig.subscriber.modify_push_config, subscription=subscription, push_config={"push_endpoint": receiver.url}
    )
    with pytest.raises(FailedPrecondition):
        await asyncio.to_thread(stream.result, WITHIN_S)
    with pytest.raises(FailedPrecondition):
        await waiting
    await asyncio.to_thread(rig.publish, topic, "pushed")
    await receiver.received(1, WITHIN_S)

    await asyncio.to_thread(rig.subscriber.modify_push_config, subscription=subscription, push_config={})
    await asyncio.to_thread(rig.publish, topic, "pulled")
    received = await asyncio.to_thread(rig.pull, subscription, 1)
    assert bodies(received) == ["pulled"]
    assert [data(request) for request in receiver.requests] == ["pushed"]


async def test_the_guard_keeps_pushes_from_loopback_unless_it_is_allowed(
    tmp_path: Path, receiver: RecordingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_EGRESS__ALLOW", raising=False)
    with running(tmp_path, "--memory") as server, clients_of(server) as clients, ExitStack() as clean_up:
        rig = Rig(clients, clean_up)
        topic = rig.topic()
        rig.subscription(topic, push_config={"push_endpoint": receiver.url})
        await asyncio.to_thread(rig.publish, topic, "a")
        await asyncio.to_thread(wait_until, lambda: 'outcome="forbidden"' in server.get("/metrics"))
        assert "egress.allow" in server.log()
    assert receiver.requests == []


async def test_pushes_go_on_in_order_after_kill_minus_nine(
    tmp_path: Path, receiver: RecordingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_EGRESS__ALLOW", "127.0.0.0/8")
    with running(tmp_path, "--data", str(tmp_path / "data")) as server, clients_of(server) as clients:
        rig = Rig(clients, ExitStack())  # the server goes with the test, so nothing is cleaned up
        topic = rig.topic()
        rig.subscription(topic, push_config={"push_endpoint": receiver.url}, enable_message_ordering=True)
        sent = {key: [f"{key}{number}" for number in range(100)] for key in KEYS}
        for key, texts in sent.items():
            await asyncio.to_thread(rig.publish, topic, *texts, key=key)
        await receiver.received(30, WITHIN_S)

        server.kill()
        assert len(receiver.requests) < 300
        await asyncio.to_thread(server.start)

        await receiver.received(300, WITHIN_S)
        came = {key: [data(request) for request in receiver.requests if data(request)[0] == key] for key in KEYS}
        while any(len(set(texts)) < 100 for texts in came.values()):
            await receiver.received(len(receiver.requests) + 1, WITHIN_S)
            came = {key: [data(request) for request in receiver.requests if data(request)[0] == key] for key in KEYS}
        assert {key: list(dict.fromkeys(texts)) for key, texts in came.items()} == sent
        # In a thread, for the receiver to answer the last push meanwhile.
        assert await asyncio.to_thread(server.stop) == 0

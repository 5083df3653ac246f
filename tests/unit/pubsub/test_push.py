"""Pushes on a virtual clock, to an endpoint that a test answers for."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from google.pubsub_v1 import types

from penstock.broker.async_broker import AsyncBroker
from penstock.delivery.errors import AnswerTimedOut, ConnectFailed, EgressRefused
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.request import RequestHead
from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.domain.signing import Signature
from penstock.engine.queue.entry import Entry
from penstock.engine.store.memory import MemoryStore
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest, NotForPush
from penstock.pubsub.push.pusher import FIRST_SIZE, LARGEST_BYTES, LARGEST_SIZE, PushOutcome, PushWindow
from penstock.pubsub.push.request import PushFormat
from penstock.pubsub.services import PubsubServices
from penstock.testing.clock import VirtualClock
from tests.rigs.virtual_pauses import settle, until

TOPIC, SUBSCRIPTION = "projects/p/topics/orders", "projects/p/subscriptions/billing"
ENDPOINT = {"push_endpoint": "http://shop.example/in?token=secret"}
CALL: Any = None


class Endpoint:
    """Holds every request until the test answers it, or answers all alike."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.timeouts_s: list[float | None] = []
        self.waiting: dict[str, asyncio.Future[Answer]] = {}
        self.status: int | None = None
        self.most_at_once = 0

    async def send(
        self, _: RequestHead, body: bytes, signature: Signature | None = None, *, timeout_s: float | None = None
    ) -> Answer:
        assert signature is None
        text = msgspec.json.decode(body)["message"]["data"]
        data = msgspec.convert(text, bytes).decode()
        self.came.append(data)
        self.timeouts_s.append(timeout_s)
        if self.status is not None:
            return Answer(self.status, None, b"")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting[data] = future
        self.most_at_once = max(self.most_at_once, len(self.waiting))
        try:
            return await future
        finally:
            self.waiting.pop(data, None)

    def answer(self, status: int, *bodies: str) -> None:
        for body in bodies or tuple(self.waiting):
            self.waiting.pop(body).set_result(Answer(status, None, b""))

    def fail(self, error: Exception) -> None:
        for body in tuple(self.waiting):
            self.waiting.pop(body).set_exception(error)


class Rig:
    """A front in memory whose pushes go to the endpoint."""

    def __init__(self, broker: AsyncBroker, clock: VirtualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.endpoint = Endpoint()
        self.front = PubsubServices(broker, self.endpoint, clock, TsidFactory(2), durable=False)

    async def subscribe(self, **fields: Any) -> None:
        await self.front.publisher.create_topic(wire.Topic(name=TOPIC), CALL)
        subscription = wire.Subscription(**{"name": SUBSCRIPTION, "topic": TOPIC, "push_config": ENDPOINT, **fields})
        await self.front.subscriber.create_subscription(subscription, CALL)

    async def publish(self, *bodies: str, key: str = "") -> None:
        messages = [{"data": body.encode(), "ordering_key": key} for body in bodies]
        await self.front.publisher.publish(types.PublishRequest.pb()(topic=TOPIC, messages=messages), CALL)

    async def configure(self, **push: str) -> None:
        request = types.ModifyPushConfigRequest.pb()(subscription=SUBSCRIPTION, push_config=push)
        await self.front.subscriber.modify_push_config(request, CALL)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.tick()

    @property
    def waiting(self) -> int:
        counters = self.broker.rules.subscription(SUBSCRIPTION).queue.counters()
        return counters.visible + counters.delayed + counters.leased


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    clock = VirtualClock()
    async with await AsyncBroker.open(MemoryStore(), clock, TsidFactory(1)) as broker:
        rig = Rig(broker, clock)
        yield rig
        await rig.front.pushers.close(0.0)


async def test_an_answer_of_2xx_settles_and_any_other_brings_the_message_again(rig: Rig) -> None:
    await rig.subscribe()
    await rig.publish("a", "b", "c")
    await until(lambda: len(rig.endpoint.waiting) == 3)
    rig.endpoint.answer(200, "a")
    rig.endpoint.answer(204, "b")
    rig.endpoint.answer(302, "c")
    await until(lambda: rig.waiting == 1)

    await settle()
    assert rig.endpoint.came == ["a", "b", "c"]
    rig.advance(0.2)
    await until(lambda: rig.endpoint.came == ["a", "b", "c", "c"])


async def test_the_retry_policy_of_the_subscription_is_the_back_off(rig: Rig) -> None:
    await rig.subscribe(retry_policy={"minimum_backoff": {"seconds": 20}, "maximum_backoff": {"seconds": 600}})
    await rig.publish("a")
    await until(lambda: rig.endpoint.waiting)
    rig.endpoint.answer(500)
    await settle()

    rig.advance(19.9)
    await settle()
    assert rig.endpoint.came == ["a"]
    rig.advance(0.2)
    await until(lambda: rig.endpoint.came == ["a", "a"])


async def test_a_key_has_one_push_outstanding_and_a_failed_message_holds_it(rig: Rig) -> None:
    await rig.subscribe(enable_message_ordering=True)
    await rig.publish("a1", "a2", key="a")
    await rig.publish("b1", key="b")
    await until(lambda: set(rig.endpoint.waiting) == {"a1", "b1"})
    await settle()
    rig.endpoint.answer(500, "a1")
    rig.endpoint.answer(200, "b1")
    await settle()
    assert "a2" not in rig.endpoint.came

    rig.advance(1)
    await until(lambda: set(rig.endpoint.waiting) == {"a1"})
    rig.endpoint.answer(200)
    await until(lambda: set(rig.endpoint.waiting) == {"a2"})


async def test_the_number_outstanding_starts_small_grows_with_successes_and_shrinks_with_failures(rig: Rig) -> None:
    await rig.subscribe()
    await rig.publish(*map(str, range(200)))
    await until(lambda: len(rig.endpoint.waiting) == FIRST_SIZE)
    await settle()
    assert len(rig.endpoint.came) == FIRST_SIZE
    rig.endpoint.answer(200)
    await settle()
    grown = len(rig.endpoint.waiting)
    assert FIRST_SIZE < grown <= 2 * FIRST_SIZE
    rig.endpoint.answer(400)
    await settle()
    assert len(rig.endpoint.waiting) == grown // 2


async def test_an_endpoint_that_keeps_failing_is_left_alone_and_spends_no_attempts_meanwhile(rig: Rig) -> None:
    await rig.front.publisher.create_topic(wire.Topic(name=f"{TOPIC}-dead"), CALL)
    await rig.subscribe(dead_letter_policy={"dead_letter_topic": f"{TOPIC}-dead", "max_delivery_attempts": 100})
    rig.endpoint.status = 503
    await rig.publish(*map(str, range(50)))
    await until(lambda: len(rig.endpoint.came) >= 10)
    await settle()
    sent = len(rig.endpoint.came)

    rig.advance(4)
    await settle()
    assert len(rig.endpoint.came) == sent
    engine = rig.broker.rules.subscription(SUBSCRIPTION).queue.engine
    assert sum(entry.receive_count for entry in engine.peek(0, 100)) == sent


@pytest.mark.parametrize("error", [ConnectFailed("nobody is there"), EgressRefused("not there"), ValueError("a bug")])
async def test_a_request_without_an_answer_is_made_again(rig: Rig, error: Exception) -> None:
    await rig.subscribe()
    await rig.publish("a")
    await until(lambda: rig.endpoint.waiting)
    rig.endpoint.fail(error)
    await settle()
    rig.advance(1)
    await until(lambda: rig.endpoint.came == ["a", "a"])


async def test_an_endpoint_has_the_ack_deadline_to_answer(rig: Rig) -> None:
    await rig.subscribe(ack_deadline_seconds=17)
    await rig.publish("a")
    await until(lambda: rig.endpoint.waiting)
    assert rig.endpoint.timeouts_s == [17]
    rig.endpoint.fail(AnswerTimedOut(17))
    counts = rig.front.pushers.counts[SUBSCRIPTION]
    await until(lambda: counts.ended[PushOutcome.TIMED_OUT] == 1)
    await settle()
    rig.advance(1)
    await until(lambda: rig.endpoint.came == ["a", "a"])


async def test_streams_and_pulls_are_refused_while_there_is_an_endpoint(rig: Rig) -> None:
    await rig.subscribe()
    request = types.PullRequest.pb()(subscription=SUBSCRIPTION, max_messages=1, return_immediately=True)
    with pytest.raises(NotForPush):
        await rig.front.subscriber.pull(request, CALL)
    await rig.configure()
    await rig.publish("a")
    response = await rig.front.subscriber.pull(request, CALL)
    assert [received.message.data for received in response.received_messages] == [b"a"]


async def test_a_waiting_pull_and_an_open_stream_end_when_an_endpoint_is_set(rig: Rig) -> None:
    await rig.subscribe(push_config={})

    class Waits:
        def time_remaining(self) -> float | None:
            return None

        async def read(self) -> object:
            if not self.opened:
                self.opened = True
                return wire.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10)
            return await asyncio.get_running_loop().create_future()

        async def write(self, _: types.StreamingPullResponse) -> None:
            return

        opened = False

    request = types.PullRequest.pb()(subscription=SUBSCRIPTION, max_messages=1)
    pulling = asyncio.create_task(rig.front.subscriber.pull(request, Waits()))
    streaming = asyncio.create_task(rig.front.streaming_pull(Waits()))
    await settle()
    assert not pulling.done()
    assert not streaming.done()
    await rig.configure(**ENDPOINT)
    for task in (pulling, streaming):
        with pytest.raises(NotForPush):
            await task


async def test_what_is_under_way_ends_and_nothing_more_is_sent_when_the_endpoint_is_removed(rig: Rig) -> None:
    await rig.subscribe(enable_message_ordering=True)
    await rig.publish("1", "2", key="k")
    await until(lambda: rig.endpoint.waiting)
    await rig.configure()
    rig.endpoint.answer(200)
    await until(lambda: rig.waiting == 1)
    await settle()
    assert rig.endpoint.came == ["1"]


async def test_a_detached_subscription_and_a_deleted_one_are_pushed_no_more(rig: Rig) -> None:
    await rig.subscribe()
    await rig.publish("a")
    await until(lambda: rig.endpoint.waiting)
    rig.endpoint.answer(200)
    detach = types.DetachSubscriptionRequest.pb()(subscription=SUBSCRIPTION)
    await rig.front.publisher.detach_subscription(detach, CALL)
    delete = types.DeleteSubscriptionRequest.pb()(subscription=SUBSCRIPTION)
    await rig.front.subscriber.delete_subscription(delete, CALL)
    assert rig.front.pushers.counts == {}
    await asyncio.wait_for(rig.front.pushers.close(30.0), 5.0)
    assert rig.endpoint.came == ["a"]


async def test_a_seek_starts_over_and_is_pushed(rig: Rig) -> None:
    await rig.subscribe(retain_acked_messages=True)
    start_ms = rig.clock.now_ms()
    await rig.publish("a")
    await until(lambda: rig.endpoint.waiting)
    rig.endpoint.answer(200)
    await until(lambda: rig.waiting == 0)
    await rig.broker.seek(SUBSCRIPTION, start_ms)
    await until(lambda: rig.endpoint.came == ["a", "a"])


async def test_an_endpoint_that_is_no_url_is_refused_without_telling_it(rig: Rig) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        await rig.subscribe(push_config={"push_endpoint": "https://user:secret@shop.example/"})
    assert "secret" not in refusal.value.message


def test_a_window_is_halved_once_for_what_was_sent_together_and_never_beyond_its_bounds() -> None:
    window = PushWindow()
    for _ in range(2 * LARGEST_SIZE):
        window.end(window.begin(1), 1, succeeded=True)
    assert window.size == FIRST_SIZE, "one at a time never fills it"
    while window.size < LARGEST_SIZE:
        before = window.size
        for generation in [window.begin(1) for _ in range(window.free_messages)]:
            window.end(generation, 1, succeeded=True)
        assert window.size > before
    assert window.size == LARGEST_SIZE
    for generation in [window.begin(1) for _ in range(window.free_messages)]:
        window.end(generation, 1, succeeded=False)
    assert window.size == LARGEST_SIZE // 2
    window.begin(LARGEST_BYTES)
    assert window.free_messages == 0


def push_format(**push: Any) -> PushFormat:
    return PushFormat(SUBSCRIPTION, types.PushConfig.pb()(**{**ENDPOINT, **push}))


def delivery(**fields: Any) -> Entry:
    message = Message("01ID", b"hello", 1_700_000_000_123, 5, **fields)
    return Entry(1, message, receive_count=3)


def test_a_wrapped_message_has_googles_fields_in_both_spellings() -> None:
    entry = delivery(group="key", attributes={"kind": "order"}, notes={"googclient_schemaname": "s"})
    head, body = push_format().request(entry, counts_attempts=True)
    assert msgspec.json.decode(body) == {
        "message": {
            "attributes": {"kind": "order", "googclient_schemaname": "s"},
            "data": "aGVsbG8=",
            "messageId": "01ID",
            "message_id": "01ID",
            "orderingKey": "key",
            "publishTime": "2023-11-14T22:13:20.123Z",
            "publish_time": "2023-11-14T22:13:20.123Z",
        },
        "subscription": SUBSCRIPTION,
        "deliveryAttempt": 3,
    }
    assert dict(head.headers)["content-type"] == "application/json"


def test_attempts_keys_and_attributes_that_there_are_not_are_left_out() -> None:
    _, body = push_format().request(delivery(), counts_attempts=False)
    decoded = msgspec.json.decode(body)
    assert set(decoded) == {"message", "subscription"}
    assert set(decoded["message"]) == {"data", "messageId", "message_id", "publishTime", "publish_time"}


def test_a_bare_message_is_its_data_alone() -> None:
    head, body = push_format(no_wrapper={}).request(delivery(attributes={"kind": "order"}), counts_attempts=True)
    assert (body, dict(head.headers)) == (b"hello", {"user-agent": "penstock"})


def test_metadata_goes_into_headers_and_attributes_cannot_break_the_request() -> None:
    attributes = {
        "Content-Type": "text/plain",
        "Content-Length": "0",
        "Transfer-Encoding": "chunked",
        "host": "elsewhere",
        "line": "a\r\nx-injected: 1",
        "not a name": "1",
        "x-goog-pubsub-message-id": "forged",
    }
    form = push_format(no_wrapper={"write_metadata": True})
    head, body = form.request(delivery(group="key", attributes=attributes), counts_attempts=True)
    assert body == b"hello"
    assert dict(head.headers) == {
        "user-agent": "penstock",
        "content-type": "text/plain",
        "x-goog-pubsub-subscription-name": SUBSCRIPTION,
        "x-goog-pubsub-message-id": "01ID",
        "x-goog-pubsub-publish-time": "2023-11-14T22:13:20.123Z",
        "x-goog-pubsub-ordering-key": "key",
    }

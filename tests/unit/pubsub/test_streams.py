"""Streams on a virtual clock, with a client made of two queues instead of a connection."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.pubsub_v1 import types

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.errors import SubscriptionFull
from penstock.domain.ids import TsidFactory
from penstock.engine.store.memory import MemoryStore
from penstock.pubsub import limits, wire
from penstock.pubsub.errors import InvalidRequest, ServerStopping
from penstock.pubsub.services import PubsubServices
from penstock.pubsub.subscribe.outstanding import MOST_MESSAGES, FlowLimits
from penstock.testing.clock import VirtualClock
from tests.rigs.virtual_pauses import settle, until

TOPIC, SUBSCRIPTION = "projects/p/topics/orders", "projects/p/subscriptions/billing"
CALL: Any = None
NOBODY: Any = None
"""Nothing is pushed here."""


class Client:
    """One end of a stream: what it says and what it has read; it reads only when told, or always."""

    def __init__(self, *, reads: bool = True) -> None:
        self.says: asyncio.Queue[object] = asyncio.Queue()
        self.heard: list[types.StreamingPullResponse] = []
        self.writes = 0
        self._reading = asyncio.Event()
        if reads:
            self._reading.set()

    def say(self, **fields: Any) -> None:
        self.says.put_nowait(wire.StreamingPullRequest(**fields))

    def hang_up(self) -> None:
        self.says.put_nowait(None)

    async def read(self) -> object:
        return await self.says.get()

    async def write(self, response: types.StreamingPullResponse) -> None:
        self.writes += 1
        await self._reading.wait()
        self.heard.append(response)

    @property
    def received(self) -> list[Any]:
        return [message for response in self.heard for message in response.received_messages]

    @property
    def bodies(self) -> list[str]:
        return [message.message.data.decode() for message in self.received]


class Rig:
    """A front in memory with one topic and one subscription."""

    def __init__(self, broker: AsyncBroker, clock: VirtualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.front = PubsubServices(broker, NOBODY, clock, TsidFactory(2), durable=False)
        self._streams: list[asyncio.Task[None]] = []

    async def subscribe(self, **fields: Any) -> None:
        await self.front.publisher.create_topic(wire.Topic(name=TOPIC), CALL)
        subscription = wire.Subscription(name=SUBSCRIPTION, topic=TOPIC, **fields)
        await self.front.subscriber.create_subscription(subscription, CALL)

    async def publish(self, *bodies: str, size_bytes: int = 0) -> None:
        messages = [{"data": body.encode().ljust(size_bytes)} for body in bodies]
        request = types.PublishRequest.pb()(topic=TOPIC, messages=messages)
        await self.front.publisher.publish(request, CALL)

    def stream(self, client: Client, **fields: Any) -> "asyncio.Task[None]":
        client.say(**{"subscription": SUBSCRIPTION, "stream_ack_deadline_seconds": 20, **fields})
        task = asyncio.create_task(self.front.streaming_pull(client))
        self._streams.append(task)
        return task

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.tick()

    async def close(self) -> None:
        for task in self._streams:
            task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        await self.broker.close()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    clock = VirtualClock()
    rig = Rig(await AsyncBroker.open(MemoryStore(), clock, TsidFactory(1)), clock)
    yield rig
    await rig.close()


async def test_the_stream_deadline_counts_and_leases_outlive_the_stream(rig: Rig) -> None:
    await rig.subscribe()
    await rig.publish("held")
    first, second = Client(), Client()
    gone = rig.stream(first)
    await until(lambda: first.bodies == ["held"])
    first.hang_up()
    await gone
    rig.stream(second)

    rig.advance(19.9)
    await settle()
    assert second.bodies == []
    rig.advance(0.2)
    await until(lambda: second.bodies == ["held"])


async def test_a_later_request_changes_the_deadline_of_what_is_sent_from_then_on(rig: Rig) -> None:
    await rig.subscribe()
    client, other = Client(), Client()
    rig.stream(client, max_outstanding_messages=1)
    client.say(stream_ack_deadline_seconds=100)
    await until(lambda: client.says.empty())
    await settle()
    await rig.publish("held")
    await until(lambda: client.bodies == ["held"])
    rig.stream(other)

    rig.advance(99)
    await settle()
    assert other.bodies == []
    rig.advance(2)
    await until(lambda: len(client.bodies) + len(other.bodies) == 2)


async def test_a_client_that_reads_nothing_makes_the_server_hold_one_response(rig: Rig) -> None:
    await rig.subscribe()
    client = Client(reads=False)
    rig.stream(client)
    for _ in range(20):
        await rig.publish(*(str(number) for number in range(10)), size_bytes=100_000)
        await settle()

    counters = rig.broker.rules.subscription(SUBSCRIPTION).queue.counters()
    assert client.writes == 1
    assert counters.leased_bytes <= 1_200_000
    assert counters.visible == 200 - counters.leased


async def test_bytes_outstanding_are_bounded_too(rig: Rig) -> None:
    await rig.subscribe()
    client = Client()
    rig.stream(client, max_outstanding_bytes=250_000)
    await rig.publish(*map(str, range(10)), size_bytes=100_000)
    await settle()

    assert len(client.bodies) <= 3
    client.say(ack_ids=[message.ack_id for message in client.received])
    before = len(client.bodies)
    await until(lambda: len(client.bodies) > before)


async def test_leases_that_run_out_make_room_again(rig: Rig) -> None:
    await rig.subscribe()
    client = Client()
    rig.stream(client, max_outstanding_messages=2)
    await rig.publish("a", "b", "c")
    await until(lambda: client.bodies == ["a", "b"])
    await settle()
    assert client.bodies == ["a", "b"]

    rig.advance(21)
    # The stream's own timer runs on real time; an ack of something that ran out wakes it as well.
    client.say(ack_ids=[client.received[0].ack_id])

    await until(lambda: len(client.bodies) >= 4)
    assert client.bodies[2:] == ["a", "b"]


async def test_messages_sent_to_a_stream_can_be_settled_by_other_calls(rig: Rig) -> None:
    await rig.subscribe()
    client = Client()
    rig.stream(client, max_outstanding_messages=1)
    await rig.publish("a", "b", "c")
    await until(lambda: client.bodies == ["a"])

    acknowledge = types.AcknowledgeRequest.pb()(subscription=SUBSCRIPTION, ack_ids=[client.received[0].ack_id])
    await rig.front.subscriber.acknowledge(acknowledge, CALL)
    await until(lambda: client.bodies == ["a", "b"])
    nack = types.ModifyAckDeadlineRequest.pb()(subscription=SUBSCRIPTION, ack_ids=[client.received[1].ack_id])
    await rig.front.subscriber.modify_ack_deadline(nack, CALL)
    await until(lambda: client.bodies == ["a", "b", "b"])


async def test_exactly_once_confirms_on_the_stream(rig: Rig) -> None:
    await rig.subscribe(enable_exactly_once_delivery=True)
    await rig.publish("a")
    client = Client()
    rig.stream(client)
    await until(lambda: client.received)
    current = client.received[0].ack_id

    client.say(
        ack_ids=[current, "never given"], modify_deadline_ack_ids=[current, "no"], modify_deadline_seconds=[30, 30]
    )
    await until(lambda: len(client.heard) == 2)

    assert client.heard[0].subscription_properties.exactly_once_delivery_enabled
    confirmation = client.heard[1].acknowledge_confirmation
    assert (list(confirmation.ack_ids), list(confirmation.invalid_ack_ids)) == ([current], ["never given"])
    deadlines = client.heard[1].modify_ack_deadline_confirmation
    assert (list(deadlines.ack_ids), list(deadlines.invalid_ack_ids)) == ([current], ["no"])


async def test_a_thousand_idle_streams_do_nothing_until_there_is_something_to_do(rig: Rig) -> None:
    await rig.subscribe()
    clients = [Client() for _ in range(1000)]
    for client in clients:
        rig.stream(client)
    await settle()

    await rig.publish("one")
    await until(lambda: sum(client.writes for client in clients) == 1)
    await settle()

    assert sum(client.writes for client in clients) == 1


async def test_a_stream_goes_on_after_a_seek(rig: Rig) -> None:
    await rig.subscribe(retain_acked_messages=True)
    await rig.publish("again")
    client = Client()
    rig.stream(client)
    await until(lambda: client.bodies == ["again"])
    client.say(ack_ids=[client.received[0].ack_id])
    await settle()

    seek = types.SeekRequest.pb()(subscription=SUBSCRIPTION, time={"seconds": 1})
    await rig.front.snapshots.seek(seek, CALL)

    await until(lambda: client.bodies == ["again", "again"])


async def test_a_stop_ends_streams_that_wait_for_messages_and_those_that_wait_for_room(rig: Rig) -> None:
    await rig.subscribe()
    full, idle, late = Client(), Client(), Client()
    streams = [rig.stream(full, max_outstanding_messages=1)]
    await rig.publish("a", "b")
    await until(lambda: full.bodies == ["a"])
    streams.append(rig.stream(idle, max_outstanding_messages=1))
    await until(lambda: idle.bodies == ["b"])
    await settle()

    rig.front.stop_waiting()
    streams.append(rig.stream(late))

    for stream in streams:
        with pytest.raises(ServerStopping):
            await stream


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"subscription": SUBSCRIPTION}, "only the first request"),
        ({"stream_ack_deadline_seconds": 5}, "between 10 and 600"),
        ({"modify_deadline_ack_ids": ["a"]}, "the same length"),
        ({"modify_deadline_ack_ids": ["a"], "modify_deadline_seconds": [601]}, "between 0 and 600"),
    ],
)
async def test_a_wrong_request_ends_the_stream(rig: Rig, fields: dict[str, Any], problem: str) -> None:
    await rig.subscribe()
    client = Client()
    stream = rig.stream(client)
    client.say(**fields)

    with pytest.raises(InvalidRequest, match=problem):
        await stream


async def test_a_subscription_nobody_uses_expires(rig: Rig) -> None:
    await rig.subscribe(expiration_policy={"ttl": {"seconds": 86_400}})
    client = Client()
    stream = rig.stream(client)
    await settle()

    rig.advance(86_401)
    await rig.front.sweep()
    assert rig.broker.rules.find_subscription(SUBSCRIPTION) is not None, "a stream is open"
    client.hang_up()
    await stream
    await rig.front.sweep()
    assert rig.broker.rules.find_subscription(SUBSCRIPTION) is None


async def test_a_subscription_that_is_to_live_for_ever_does(rig: Rig) -> None:
    await rig.subscribe(expiration_policy={})

    rig.advance(400 * 86_400)
    await rig.front.sweep()

    assert rig.broker.rules.find_subscription(SUBSCRIPTION) is not None


async def test_a_full_subscription_refuses_the_publish_and_loses_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORY_BACKLOG_MESSAGES", 3)
    await rig.subscribe()
    await rig.publish("a", "b")

    with pytest.raises(SubscriptionFull):
        await rig.publish("c", "d")
    await rig.publish("e")

    client = Client()
    rig.stream(client)
    await until(lambda: client.bodies == ["a", "b", "e"])


def test_a_client_without_limits_gets_the_servers() -> None:
    assert FlowLimits.asked_for(0, -1) == FlowLimits()
    assert FlowLimits.asked_for(10**9, 7) == FlowLimits(MOST_MESSAGES, 7)

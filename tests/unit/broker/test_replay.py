"""Snapshots, seeking and retention in the broker, on every store."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.errors import SnapshotNotFound, SubscriptionDetached
from penstock.broker.message import InternalMessage
from penstock.broker.options import DeadLetterPolicy, SubscriptionOptions
from penstock.domain.ids import TsidFactory
from penstock.engine.queue.policy import Window
from penstock.engine.store.port import Store
from penstock.testing.clock import VirtualClock
from tests.rigs.broker import EVERYWHERE, _store_maker

DAY_S = 86_400
WINDOW = Window(messages=20, size_bytes=1 << 20, lookahead=100)


class Rig:
    """A broker on a virtual clock with the topic `orders`, which can be closed and opened again."""

    def __init__(self, store_of: Callable[[], Store]) -> None:
        self.clock = VirtualClock()
        self._ids = TsidFactory(1)
        self._store_of = store_of
        self.store: Store
        self.broker: AsyncBroker

    async def open(self) -> None:
        self.store = self._store_of()
        self.broker = await AsyncBroker.open(self.store, self.clock, self._ids, WINDOW)

    async def reopen(self) -> None:
        await self.broker.close()
        await self.open()

    async def subscribe(self, name: str = "billing", **options: object) -> None:
        await self.broker.register_topic("orders")
        await self.broker.register_subscription(name, "orders", SubscriptionOptions(**options))  # type: ignore[arg-type]

    async def publish(self, *bodies: str, key: str | None = None, **attributes: str) -> None:
        messages = [InternalMessage(body.encode(), attributes, key) for body in bodies]
        await self.broker.publish("orders", messages)

    async def take(self, name: str = "billing", most: int = 1000) -> list[str]:
        """Pull and ack everything."""
        bodies: list[str] = []
        while len(bodies) < most:
            messages = await self.broker.pull(name, min(100, most - len(bodies)))
            if not messages:
                break
            await self.broker.ack([message.ack_id for message in messages])
            bodies += [message.data.decode() for message in messages]
        return bodies


@pytest.fixture(params=EVERYWHERE)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(_store_maker(request, tmp_path))
    await rig.open()
    yield rig
    await rig.broker.close()


def is_durable(rig: Rig) -> bool:
    return rig.store.durable


async def test_a_backlog_deeper_than_the_window_comes_back_from_a_snapshot_in_order(rig: Rig) -> None:
    await rig.subscribe(message_ordering=True)
    sent = [f"{number:03}" for number in range(150)]
    for start in range(0, 150, 10):
        await rig.publish(*sent[start : start + 10], key="k")
    assert await rig.take(most=30) == sent[:30]
    await rig.broker.create_snapshot("before", "billing", rig.clock.now_ms() + 1000)
    assert await rig.take() == sent[30:]

    await rig.broker.seek_to_snapshot("billing", "before")

    assert await rig.take(most=60) == sent[30:90]
    if is_durable(rig):
        await rig.reopen()
    assert await rig.take() == sent[90:]


async def test_what_was_acked_is_back_after_a_seek_when_it_is_retained(rig: Rig) -> None:
    await rig.subscribe(retain_acked=True)
    await rig.publish("early")
    rig.clock.advance(10)
    middle_ms = rig.clock.now_ms()
    await rig.publish("late")
    assert await rig.take() == ["early", "late"]
    if is_durable(rig):
        await rig.reopen()

    await rig.broker.seek("billing", middle_ms)
    assert await rig.take() == ["late"]
    await rig.broker.seek("billing", 0)
    assert await rig.take() == ["early", "late"]


async def test_what_is_retained_goes_when_its_time_is_over(rig: Rig) -> None:
    await rig.subscribe(retain_acked=True, message_retention_seconds=DAY_S)
    await rig.publish("old")
    rig.clock.advance(DAY_S / 2)
    await rig.publish("newer")
    assert await rig.take() == ["old", "newer"]

    rig.clock.advance(DAY_S / 2 + 1)
    await rig.broker.sweep()
    (retained,) = rig.broker.replay.retention_queues()
    assert retained.total == 1
    await rig.broker.seek("billing", 0)
    assert await rig.take() == ["newer"]
    rig.clock.advance(DAY_S)
    await rig.broker.sweep()

    assert retained.total == 0
    assert rig.store.totals(retained.id).messages == 0


async def test_a_snapshot_goes_when_its_time_is_over_and_frees_its_messages(rig: Rig) -> None:
    await rig.subscribe()
    await rig.publish("kept by the snapshot only")
    await rig.broker.create_snapshot("short", "billing", rig.clock.now_ms() + 60_000)
    await rig.take()
    await rig.broker.sweep()
    assert [snapshot.name for snapshot in rig.broker.replay.snapshots()] == ["short"]

    rig.clock.advance(61)
    await rig.broker.sweep()

    assert rig.broker.replay.snapshots() == []
    with pytest.raises(SnapshotNotFound):
        await rig.broker.seek_to_snapshot("billing", "short")


async def test_a_seek_ends_leases_and_their_ack_ids(rig: Rig) -> None:
    await rig.subscribe(retain_acked=True)
    await rig.publish("leased")
    (leased,) = await rig.broker.pull("billing", 1)

    await rig.broker.seek("billing", 0)
    subscription = rig.broker.rules.subscription("billing")

    assert await rig.broker.ack_current(subscription, [leased.ack_id]) == [leased.ack_id]
    assert await rig.take() == ["leased"]


async def test_a_seek_into_the_future_settles_what_comes_until_then(rig: Rig) -> None:
    await rig.subscribe()
    await rig.broker.seek("billing", rig.clock.now_ms() + 10_000)
    await rig.publish("before")
    rig.clock.advance(10)
    await rig.publish("after")

    assert await rig.take() == ["after"]


async def test_a_filter_holds_for_publishes_dead_letters_and_replays(rig: Rig) -> None:
    await rig.broker.register_topic("orders", retention_s=DAY_S)
    wanted = SubscriptionOptions(filter='attributes.wanted = "yes"')
    await rig.broker.register_subscription("filtered", "orders", wanted)
    await rig.broker.register_topic("source")
    policy = DeadLetterPolicy(dead_letter_topic="orders", max_delivery_attempts=1)
    await rig.broker.register_subscription("failing", "source", SubscriptionOptions(dead_letter_policy=policy))
    await rig.publish("one", wanted="yes")
    await rig.publish("two", wanted="no")
    await rig.broker.publish("source", [InternalMessage(b"three", {"wanted": "yes"}), InternalMessage(b"four")])

    for message in await rig.broker.pull("failing", 10):
        rig.broker.nack(message.ack_id)
    assert await rig.take("failing") == []
    assert await rig.take("filtered") == ["one", "three"]
    await rig.broker.seek("filtered", 0)
    assert await rig.take("filtered") == ["one", "three"]


async def test_a_detached_subscription_gets_nothing_and_costs_its_topic_nothing(rig: Rig) -> None:
    await rig.subscribe("detached", retain_acked=True)
    await rig.subscribe("attached")
    await rig.publish("before")

    await rig.broker.detach_subscription("detached")
    await rig.broker.detach_subscription("detached")
    await rig.publish("after")

    assert await rig.take("detached") == []
    assert await rig.take("attached") == ["before", "after"]
    with pytest.raises(SubscriptionDetached):
        await rig.broker.seek("detached", 0)
    if is_durable(rig):
        await rig.reopen()
    assert rig.broker.rules.subscription("detached").config.detached
    assert [each.name for each in rig.broker.rules.subscriptions("orders")] == ["attached"]
    await rig.broker.unregister_subscription("detached")
    assert rig.broker.rules.find_subscription("detached") is None


async def test_a_removed_topic_takes_its_retention_queues_along(rig: Rig) -> None:
    await rig.broker.register_topic("orders", retention_s=DAY_S)
    await rig.subscribe(retain_acked=True)
    await rig.publish("gone")
    await rig.broker.create_snapshot("gone", "billing", rig.clock.now_ms() + 60_000)

    await rig.broker.unregister_topic("orders")

    assert not rig.broker.replay.retention_queues()
    assert not rig.broker.replay.snapshots()
    await rig.broker.register_topic("orders", retention_s=DAY_S)
    await rig.broker.register_subscription("fresh", "orders")
    await rig.publish("new")
    await rig.broker.seek("fresh", 0)
    assert await rig.take("fresh") == ["new"]


async def test_records_are_kept_by_name(rig: Rig) -> None:
    await rig.broker.put_record("b", b"one")
    await rig.broker.put_record("a", b"two")
    await rig.broker.put_record("b", b"three")
    await rig.broker.put_record("gone", b"four")
    await rig.broker.drop_record("gone")
    await rig.broker.drop_record("never there")
    if is_durable(rig):
        await rig.reopen()

    records = rig.broker.records
    assert (records.keys(""), records.get("b"), records.get("gone")) == (["a", "b"], b"three", None)
    assert rig.broker.rules.topics() == []

"""The broker on an event loop: calls that overlap, waiting pulls, and an orderly end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.broker.async_broker import AsyncBroker
from penstock.broker.message import InternalMessage
from penstock.broker.options import DeadLetterPolicy, SubscriptionOptions
from penstock.domain.ids import TsidFactory
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import Store
from penstock.engine.store.sqlite import SqliteStore
from penstock.testing.clock import VirtualClock
from tests.rigs.broker import LOCAL, SUBSCRIPTION, TOPIC, refused, texts


class AsyncRig:
    """An AsyncBroker that can be opened again."""

    def __init__(self, database: Path | None) -> None:
        self.clock = VirtualClock()
        self._database = database

    async def open(self) -> None:
        store: Store = MemoryStore()
        if self._database is not None:
            store = SqliteStore(self._database, durability="survives-process-crash-only")
        self.broker = await AsyncBroker.open(store, self.clock, TsidFactory(1))

    async def subscribe(self, name: str = SUBSCRIPTION, **options: object) -> None:
        await self.broker.register_topic(TOPIC)
        await self.broker.register_subscription(name, TOPIC, SubscriptionOptions(**options))  # type: ignore[arg-type]

    async def publish(self, *bodies: str, key: str | None = None) -> list[str]:
        return await self.broker.publish(TOPIC, [InternalMessage(body.encode(), ordering_key=key) for body in bodies])

    async def pull_texts(self, name: str = SUBSCRIPTION) -> list[str]:
        return texts(await self.broker.pull(name, 1000))


@pytest.fixture(params=LOCAL)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncRig]:
    rig = AsyncRig(tmp_path / "penstock.db" if request.param == "sqlite" else None)
    await rig.open()
    yield rig
    await rig.broker.close()


async def test_publish_pull_and_ack(rig: AsyncRig) -> None:
    await rig.subscribe()
    ids = await rig.publish("a", "b")

    first, second = await rig.broker.pull(SUBSCRIPTION, 10)
    await rig.broker.ack([first.ack_id])
    rig.broker.nack(second.ack_id)

    (again,) = await rig.broker.pull(SUBSCRIPTION, 10)
    assert (again.id, again.delivery_attempt) == (ids[1], 2)
    with refused(3, f"Invalid ack ID: {first.ack_id}"):
        await rig.broker.ack([again.ack_id, first.ack_id])
    await rig.broker.ack([again.ack_id])
    assert rig.broker.rules.subscription(SUBSCRIPTION).queue.counters().total == 0


async def test_deadlines_run_by_the_clock(rig: AsyncRig) -> None:
    await rig.subscribe()
    await rig.publish("a")
    (message,) = await rig.broker.pull(SUBSCRIPTION, 1)
    rig.broker.modify_ack_deadline(message.ack_id, 5)

    rig.clock.advance(14.999)
    rig.broker.tick()
    assert await rig.pull_texts() == []
    rig.clock.advance(0.001)
    rig.broker.tick()
    assert await rig.pull_texts() == ["a"]


async def test_a_waiting_pull_is_answered_by_a_publish(rig: AsyncRig) -> None:
    await rig.subscribe()
    waiting = asyncio.create_task(rig.broker.pull(SUBSCRIPTION, 10, wait_s=30))

    await rig.publish("a")

    assert texts(await asyncio.wait_for(waiting, 60)) == ["a"]


async def test_a_waiting_pull_is_answered_when_its_subscription_goes(rig: AsyncRig) -> None:
    await rig.subscribe()
    waiting = asyncio.create_task(rig.broker.pull(SUBSCRIPTION, 10, wait_s=30))
    await asyncio.wait([waiting], timeout=0)

    await rig.broker.unregister_subscription(SUBSCRIPTION)

    assert await asyncio.wait_for(waiting, 60) == []


async def test_publishes_at_once_keep_all_messages(rig: AsyncRig) -> None:
    await rig.subscribe()
    await rig.subscribe("other")

    ids = await asyncio.gather(*(rig.publish(f"{number}a", f"{number}b") for number in range(100)))

    expected = [f"{number}{letter}" for number in range(100) for letter in "ab"]
    assert await rig.pull_texts() == await rig.pull_texts("other") == expected
    assert [made for pair in ids for made in pair] == sorted({made for pair in ids for made in pair})


async def test_capacity_counts_what_is_being_written(rig: AsyncRig) -> None:
    await rig.subscribe(max_messages=10)

    await asyncio.gather(*(rig.publish("a") for _ in range(25)))

    assert len(await rig.pull_texts()) == 10
    assert rig.broker.rules.subscription(SUBSCRIPTION).dropped == 15


async def test_registering_the_same_topic_and_subscription_at_once(rig: AsyncRig) -> None:
    await asyncio.gather(*(rig.broker.register_topic(TOPIC) for _ in range(5)))
    await asyncio.gather(*(rig.broker.register_subscription(SUBSCRIPTION, TOPIC) for _ in range(5)))

    await rig.publish("a")
    assert await rig.pull_texts() == ["a"]


@pytest.mark.parametrize("asked", ["at first", "later"])
async def test_a_topic_retains_from_the_moment_it_is_asked_to(rig: AsyncRig, asked: str) -> None:
    await rig.broker.register_topic(TOPIC, retention_s=3600 if asked == "at first" else 0)
    if asked == "later":
        await rig.broker.update_topic(TOPIC, retention_s=3600, definition=b"")
    await rig.publish("first")
    await rig.broker.register_subscription(SUBSCRIPTION, TOPIC)

    await rig.broker.seek(SUBSCRIPTION, 0)

    assert await rig.pull_texts() == ["first"]


async def test_a_topic_that_is_being_removed_takes_nothing_more(rig: AsyncRig) -> None:
    await rig.subscribe()
    removal = asyncio.create_task(rig.broker.unregister_topic(TOPIC))
    await asyncio.wait([removal], timeout=0)

    with refused(5, f"Topic not found: {TOPIC}"):
        await rig.publish("late")
    await removal

    assert await rig.pull_texts() == []
    assert rig.broker.rules.subscription(SUBSCRIPTION).queue.counters().total == 0


async def test_no_dead_letter_goes_to_a_topic_that_is_being_removed(rig: AsyncRig) -> None:
    await rig.broker.register_topic("dead")
    await rig.broker.register_subscription("undertaker", "dead")
    await rig.subscribe(dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=1))
    await rig.publish("poison")
    (message,) = await rig.broker.pull(SUBSCRIPTION, 1)
    removal = asyncio.create_task(rig.broker.unregister_topic("dead"))
    await asyncio.wait([removal], timeout=0)

    rig.broker.nack(message.ack_id)
    await removal

    assert await rig.pull_texts() == ["poison"]
    assert rig.broker.rules.subscription("undertaker").queue.counters().total == 0


@pytest.mark.parametrize("max_messages", [0, -1])
async def test_a_pull_of_no_messages_is_refused(rig: AsyncRig, max_messages: int) -> None:
    await rig.subscribe()

    with refused(3):
        await rig.broker.pull(SUBSCRIPTION, max_messages, wait_s=30)


async def test_what_was_answered_is_there_after_a_restart(tmp_path: Path) -> None:
    rig = AsyncRig(tmp_path / "penstock.db")
    await rig.open()
    async with rig.broker:
        await rig.subscribe(message_ordering=True)
        await asyncio.gather(*(rig.publish(str(number), key="key") for number in range(20)))
        (first,) = await rig.broker.pull(SUBSCRIPTION, 10)
        await rig.broker.ack([first.ack_id])
        (second,) = await rig.broker.pull(SUBSCRIPTION, 10)
        rig.broker.nack(second.ack_id)

    rig.clock.advance(1)
    await rig.open()
    async with rig.broker:
        seen = []
        while pulled := await rig.broker.pull(SUBSCRIPTION, 10):
            seen += [(message.data.decode(), message.delivery_attempt) for message in pulled]
            await rig.broker.ack(message.ack_id for message in pulled)
    assert seen == [("1", 2), *((str(number), 1) for number in range(2, 20))]

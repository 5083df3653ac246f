"""A store that refuses a commit: the caller gets an error, and the broker is as it was before the call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.options import DeadLetterPolicy
from penstock.engine.errors import StoreFailed
from penstock.engine.store.port import Shares, WriteBatch
from penstock.engine.store.sqlite import SqliteStore
from tests.rigs.broker import SUBSCRIPTION, TOPIC, BrokerRig, refused


class FlakyStore(SqliteStore):
    """Refuses commits while it is told to."""

    refusing = False

    def apply(self, batch: WriteBatch) -> Shares:
        if self.refusing:
            raise StoreFailed("the disk is full")
        return super().apply(batch)


class FlakyRig(BrokerRig):
    store: FlakyStore


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FlakyRig]:
    rig = FlakyRig(lambda: FlakyStore(tmp_path / "penstock.db", durability="survives-process-crash-only"))
    yield rig
    rig.queue.close()


def test_a_refused_publish_reaches_nobody(rig: FlakyRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two")
    rig.store.refusing = True

    with refused(14, "the disk is full"):
        rig.publish("lost")
    rig.store.refusing = False
    rig.publish("kept")

    assert rig.pull_texts(name="one") == rig.pull_texts(name="two") == ["kept"]
    rig.crash()
    assert rig.pull_texts(name="one") == ["kept"]


def test_a_refused_publish_takes_no_room(rig: FlakyRig) -> None:
    rig.subscribe(max_messages=1)
    rig.store.refusing = True
    with refused(14):
        rig.publish("lost")
    rig.store.refusing = False

    rig.publish("kept")

    assert rig.pull_texts() == ["kept"]
    assert rig.queue.dropped(SUBSCRIPTION) == 0


def test_a_refused_ack_leaves_the_message_leased(rig: FlakyRig) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish("1", "2", key="key")
    message = rig.pull_one()
    rig.store.refusing = True

    with refused(14):
        rig.queue.ack(message.ack_id)
    rig.store.refusing = False

    assert rig.pull() == []
    rig.queue.ack(message.ack_id)
    assert rig.pull_texts() == ["2"]


def test_a_refused_dead_letter_stays_where_it_was(rig: FlakyRig) -> None:
    rig.subscribe("undertaker", "dead")
    rig.subscribe(dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=1))
    rig.publish("poison")
    message = rig.pull_one()
    rig.store.refusing = True
    rig.queue.nack(message.ack_id)
    rig.store.refusing = False

    again = rig.pull_one()
    assert rig.pull(name="undertaker") == []
    rig.queue.nack(again.ack_id)

    assert rig.pull_texts(name="undertaker") == ["poison"]
    assert rig.queue.counters(SUBSCRIPTION).total == 0


def test_a_refused_removal_leaves_topic_and_subscriptions_at_work(rig: FlakyRig) -> None:
    rig.subscribe()
    rig.publish("before")
    leased = rig.pull_one()
    rig.store.refusing = True

    with refused(14):
        rig.queue.unregister_topic(TOPIC)
    with refused(14):
        rig.queue.unregister_subscription(SUBSCRIPTION)
    rig.store.refusing = False

    found = rig.queue.get_subscription(SUBSCRIPTION)
    assert found is not None
    assert not found.detached
    rig.publish("after")
    rig.queue.ack(leased.ack_id)
    assert rig.pull_texts() == ["after"]
    rig.queue.unregister_topic(TOPIC)
    assert not rig.queue.topic_exists(TOPIC)


def test_a_refused_removal_of_a_topic_without_subscriptions_leaves_it(rig: FlakyRig) -> None:
    rig.queue.register_topic(TOPIC)
    rig.store.refusing = True

    with refused(14):
        rig.queue.unregister_topic(TOPIC)
    rig.store.refusing = False

    rig.subscribe()
    rig.publish("a")
    assert rig.pull_texts() == ["a"]


def test_a_refused_registration_can_be_made_again(rig: FlakyRig) -> None:
    rig.queue.register_topic("other")
    rig.store.refusing = True

    with refused(14):
        rig.queue.register_topic(TOPIC)
    with refused(14):
        rig.queue.register_subscription(SUBSCRIPTION, "other")
    assert not rig.queue.topic_exists(TOPIC)
    assert not rig.queue.subscription_exists(SUBSCRIPTION)
    rig.store.refusing = False

    rig.subscribe()
    assert rig.queue.topic_exists(TOPIC)

"""Subscriptions whose topic was removed (BROKER-3): they stay, know its name, and hold and get nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.options import SubscriptionOptions
from tests.rigs.broker import DURABLE, LOCAL, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig, refused


@pytest.fixture(params=LOCAL)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


on_durable_stores = pytest.mark.parametrize("rig", DURABLE, indirect=True)


def assert_detached_and_empty(rig: BrokerRig, name: str = SUBSCRIPTION) -> None:
    found = rig.queue.get_subscription(name)
    assert found is not None
    assert (found.topic, found.detached) == (TOPIC, True)
    assert rig.pull(name=name) == []
    counters = rig.queue.counters(name)
    assert (counters.total, counters.total_bytes, counters.leased_bytes) == (0, 0, 0)


def detach(rig: BrokerRig, **options: Any) -> str:
    """A subscription with messages waiting, leased and backing off loses its topic; gives the leased one's ack id."""
    rig.subscribe(**options)
    rig.publish("returned", "leased", "waiting")
    returned, leased = rig.pull(2)
    rig.queue.nack(returned.ack_id)
    rig.queue.unregister_topic(TOPIC)
    return leased.ack_id


def test_a_detached_subscription_stays_empty_when_its_topic_is_made_anew(rig: BrokerRig) -> None:
    ack_id = detach(rig)

    rig.queue.register_topic(TOPIC)
    rig.subscribe("fresh")
    rig.publish("new")

    assert rig.pull_texts(name="fresh") == ["new"]
    assert_detached_and_empty(rig)
    assert [found.name for found in rig.queue.get_subscriptions_for_topic(TOPIC)] == ["fresh"]
    with refused(3, f"Invalid ack ID: {ack_id}"):
        rig.queue.ack(ack_id)


def test_no_timer_of_a_detached_subscription_is_left(rig: BrokerRig) -> None:
    detach(rig)

    rig.clock.advance(7 * 24 * 3600)

    assert_detached_and_empty(rig)


@on_durable_stores
@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_detached_subscription_is_so_after_a_restart(rig: BrokerRig, how: str) -> None:
    ack_id = detach(rig, ack_deadline_seconds=77)

    getattr(rig, how)()

    assert not rig.queue.topic_exists(TOPIC)
    assert_detached_and_empty(rig)
    found = rig.queue.get_subscription(SUBSCRIPTION)
    assert found is not None
    assert found.options == SubscriptionOptions(ack_deadline_seconds=77)
    with refused(3, f"Invalid ack ID: {ack_id}"):
        rig.queue.ack(ack_id)
    rig.subscribe("fresh")
    rig.publish("new")
    assert_detached_and_empty(rig)
    rig.crash()
    assert_detached_and_empty(rig)
    assert rig.pull_texts(name="fresh") == ["new"]


@on_durable_stores
def test_a_topic_removed_and_made_anew_is_one_topic_after_a_restart(rig: BrokerRig) -> None:
    for _ in range(3):
        rig.subscribe(f"{SUBSCRIPTION}-{_}")
        rig.queue.unregister_topic(TOPIC)
    rig.queue.register_topic(TOPIC)

    rig.restart()

    assert [topic.name for topic in rig.queue.get_all_topics()] == [TOPIC]
    assert all(found.detached for found in rig.queue.get_all_subscriptions())
    assert len(rig.queue.get_all_subscriptions()) == 3


def test_a_detached_subscription_keeps_its_name_until_it_is_removed(rig: BrokerRig) -> None:
    detach(rig)
    rig.queue.register_topic(TOPIC)

    with refused(6):
        rig.queue.register_subscription(SUBSCRIPTION, TOPIC)
    rig.queue.unregister_subscription(SUBSCRIPTION)
    rig.subscribe()
    rig.publish("new")

    found = rig.queue.get_subscription(SUBSCRIPTION)
    assert found is not None
    assert not found.detached
    assert rig.pull_texts() == ["new"]


@on_durable_stores
def test_nothing_is_left_of_a_topic_when_its_last_detached_subscription_goes(rig: BrokerRig) -> None:
    for name in ("one", "two"):
        rig.subscribe(name)
    rig.publish("a")
    rig.queue.unregister_topic(TOPIC)
    rig.queue.unregister_subscription("one")
    rig.restart()
    rig.queue.unregister_subscription("two")
    rig.queue.close()

    assert rig.store.open() == ([], [])


def test_a_detached_subscription_still_answers_its_look_ups(rig: BrokerRig) -> None:
    detach(rig)

    assert rig.queue.subscription_exists(SUBSCRIPTION)
    assert [found.name for found in rig.queue.get_all_subscriptions()] == [SUBSCRIPTION]
    assert rig.queue.dropped(SUBSCRIPTION) == 0
    assert rig.queue.get_subscriptions_for_topic(TOPIC) == []

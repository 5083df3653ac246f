"""What a durable broker knows again after it was opened again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.message import InternalMessage
from penstock.broker.options import DeadLetterPolicy, FlowControl, Overflow, SubscriptionOptions
from penstock.domain.retry import RetryPolicy
from tests.rigs.broker import DURABLE, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig, refused, texts


@pytest.fixture(params=DURABLE)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


def test_topics_and_subscriptions_come_back_with_all_their_options(rig: BrokerRig) -> None:
    options = SubscriptionOptions(
        ack_deadline_seconds=33,
        message_ordering=True,
        flow_control=FlowControl(max_messages=7, max_bytes=70_000),
        retry_policy=RetryPolicy(minimum_backoff_s=1.5, maximum_backoff_s=90),
        dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=9),
        message_retention_seconds=3600,
        max_messages=1234,
        max_bytes=56_789,
        overflow=Overflow.REJECT,
    )
    rig.queue.register_topic(TOPIC)
    rig.clock.advance(5)
    rig.queue.register_topic("dead")
    rig.queue.register_subscription(SUBSCRIPTION, TOPIC, options)
    rig.queue.register_subscription("plain", "dead")
    topics, subscriptions = rig.queue.get_all_topics(), rig.queue.get_all_subscriptions()

    rig.crash()

    assert rig.queue.get_all_topics() == topics
    assert rig.queue.get_all_subscriptions() == subscriptions
    found = rig.queue.get_subscription(SUBSCRIPTION)
    assert found is not None
    assert found.options == options
    rig.queue.register_subscription(SUBSCRIPTION, TOPIC, options)


def test_options_are_in_force_after_a_restart(rig: BrokerRig) -> None:
    rig.subscribe("undertaker", "dead")
    rig.subscribe(
        ack_deadline_seconds=20,
        flow_control=FlowControl(max_messages=1),
        retry_policy=RetryPolicy(minimum_backoff_s=30, maximum_backoff_s=60),
        dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=2),
        max_messages=2,
    )
    rig.restart()

    rig.publish("1", "2", "dropped")
    assert rig.queue.dropped(SUBSCRIPTION) == 1
    assert rig.pull_texts() == ["1"]
    assert rig.pull() == []
    rig.clock.advance(20)
    assert rig.pull_texts() == ["2"]
    rig.clock.advance(30)
    message = rig.pull_one()
    assert (message.data, message.delivery_attempt) == (b"1", 2)
    rig.queue.nack(message.ack_id)
    assert rig.pull_texts(name="undertaker") == ["1"]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_unacked_messages_come_back_in_order_and_acked_ones_do_not(rig: BrokerRig, how: str) -> None:
    rig.subscribe()
    rig.subscribe("other")
    for start in range(0, 30, 3):
        rig.publish(*(str(number) for number in range(start, start + 3)))
    pulled = rig.pull(20)
    for message in pulled[::2]:
        rig.queue.ack(message.ack_id)
    rig.queue.nack(pulled[1].ack_id)

    getattr(rig, how)()

    assert rig.queue.counters(SUBSCRIPTION).total == 20
    assert rig.queue.counters("other").total == 30
    left = [str(number) for number in range(30) if number >= 20 or number % 2]
    assert [text for _ in range(6) for text in rig.pull_texts(7)] == left
    assert rig.pull_texts(name="other") == [str(number) for number in range(30)]


def test_a_message_comes_back_as_it_was(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.clock.advance(0.123)
    message = InternalMessage(bytes(range(256)), {"colour": "röd", "empty": ""}, "ключ")
    (message_id,) = rig.queue.publish(TOPIC, [message])
    published_ms = rig.clock.now_ms()

    rig.crash()

    (found,) = rig.pull()
    assert (found.id, found.data, found.ordering_key) == (message_id, message.data, "ключ")
    assert found.attributes == {"colour": "röd", "empty": ""}
    assert found.publish_time_ms == published_ms


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_delivery_attempts_go_on_where_they_were(rig: BrokerRig, how: str) -> None:
    rig.subscribe()
    rig.publish("a")
    rig.queue.nack(rig.pull_one().ack_id)
    rig.pull_one()
    rig.clock.advance(10)
    assert rig.queue.counters(SUBSCRIPTION).visible == 1

    getattr(rig, how)()

    assert rig.pull_one().delivery_attempt == 3


def test_a_delivery_that_an_orderly_stop_cut_short_counts_as_an_attempt(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("leased", "waiting")
    rig.pull(1)

    rig.restart()

    assert [(message.data, message.delivery_attempt) for message in rig.pull()] == [(b"leased", 2), (b"waiting", 1)]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_an_ack_id_from_before_a_restart_is_not_valid(rig: BrokerRig, how: str) -> None:
    rig.subscribe()
    rig.publish("a")
    before = rig.pull_one().ack_id

    getattr(rig, how)()

    with refused(3, f"Invalid ack ID: {before}"):
        rig.queue.ack(before)
    current = rig.pull_one()
    assert current.ack_id != before
    with refused(3, f"Invalid ack ID: {before}"):
        rig.queue.ack(before)
    rig.queue.ack(current.ack_id)


def test_ids_go_on_increasing_after_a_restart(rig: BrokerRig) -> None:
    rig.subscribe()
    ids = []
    for _ in range(3):
        ids += rig.publish("a", "b")
        rig.crash()

    assert ids == sorted(set(ids))
    assert [message.id for message in rig.pull()] == ids


def test_a_removed_subscription_and_topic_stay_removed(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.subscribe("gone")
    rig.queue.register_topic("empty")
    rig.publish("a")
    rig.queue.unregister_subscription("gone")
    rig.queue.unregister_topic("empty")

    rig.crash()

    assert [topic.name for topic in rig.queue.get_all_topics()] == [TOPIC]
    assert [found.name for found in rig.queue.get_all_subscriptions()] == [SUBSCRIPTION]
    assert rig.pull_texts() == ["a"]


def test_a_subscription_made_after_a_restart_gets_only_what_comes_after_it(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("before")
    rig.crash()
    rig.subscribe("late")
    rig.publish("after")

    assert rig.pull_texts(name="late") == ["after"]
    assert rig.pull_texts() == ["before", "after"]


def test_messages_past_their_retention_are_gone_after_a_restart(rig: BrokerRig) -> None:
    rig.subscribe(message_retention_seconds=600)
    rig.publish("old")
    rig.clock.advance(300)
    rig.publish("young")
    rig.restart()
    rig.clock.advance(299)

    assert rig.pull_texts() == ["young"]
    assert rig.queue.counters(SUBSCRIPTION).total == 1


def test_what_is_refused_is_not_stored(rig: BrokerRig) -> None:
    rig.subscribe()
    with refused(3):
        rig.queue.publish(TOPIC, [InternalMessage(b"fit"), InternalMessage(b"", {"": "unfit"})])

    rig.crash()

    assert rig.pull() == []
    rig.publish("next")
    assert texts(rig.pull()) == ["next"]

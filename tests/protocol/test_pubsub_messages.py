"""Publishing and pulling with Google's client."""

from threading import Timer
from typing import Any

import pytest
from google.api_core.exceptions import InvalidArgument, NotFound

from tests.protocol.pubsub_rig import Rig, bodies
from tests.rigs.penstock_process import wait_until

pytest_plugins = ["tests.protocol.pubsub_fixtures"]


def test_every_subscription_gets_every_message(rig: Rig) -> None:
    topic = rig.topic()
    first, second = rig.subscription(topic), rig.subscription(topic)

    ids = rig.publish(topic, "one", "two", colour="red")

    for subscription in (first, second):
        received = rig.pull(subscription, 2)
        assert sorted(bodies(received)) == ["one", "two"]
        assert {message.message.message_id for message in received} == set(ids)
        assert {message.message.attributes["colour"] for message in received} == {"red"}
        assert all(message.message.publish_time.timestamp() > 0 for message in received)


def test_thousands_of_publishes_are_batched_and_all_arrive(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    sent = [str(number) for number in range(3000)]

    ids = rig.publish(topic, *sent)

    assert len(set(ids)) == 3000
    assert sorted(bodies(rig.pull(subscription, 3000))) == sorted(sent)
    assert rig.is_empty(subscription)


def test_a_publish_without_subscriptions_is_answered_with_ids(memory_rig: Rig) -> None:
    topic = memory_rig.topic()

    assert len(memory_rig.publish(topic, "nobody hears this")) == 1


def test_an_acked_message_does_not_come_back_and_a_nacked_one_does(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    rig.publish(topic, "acked")
    rig.pull(subscription, 1)
    rig.publish(topic, "nacked")

    first = rig.pull(subscription, 1, ack=False)
    rig.nack(subscription, first)
    second = rig.pull(subscription, 1)

    assert bodies(first) == bodies(second) == ["nacked"]
    assert first[0].ack_id != second[0].ack_id
    assert rig.is_empty(subscription)


def test_a_stale_ack_is_no_error(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    rig.publish(topic, "again")
    first = rig.pull(subscription, 1, ack=False)
    rig.nack(subscription, first)
    second = rig.pull(subscription, 1, ack=False)

    rig.ack(subscription, first)
    rig.subscriber.acknowledge(subscription=subscription, ack_ids=["never given"])
    rig.nack(subscription, second)

    assert bodies(rig.pull(subscription, 1)) == ["again"]


def test_an_ack_id_counts_only_for_its_own_subscription(memory_rig: Rig) -> None:
    topic = memory_rig.topic()
    mine, other = memory_rig.subscription(topic), memory_rig.subscription(topic)
    memory_rig.publish(topic, "mine")
    received = memory_rig.pull(mine, 1, ack=False)

    memory_rig.ack(other, received)
    memory_rig.nack(mine, received)

    assert bodies(memory_rig.pull(mine, 1)) == ["mine"]
    assert bodies(memory_rig.pull(other, 1)) == ["mine"]


def test_a_deadline_counts_from_now_and_what_runs_out_comes_back(rig: Rig) -> None:
    topic = rig.topic()
    policy = {"dead_letter_topic": rig.topic()}  # only so that attempts are reported
    subscription = rig.subscription(topic, dead_letter_policy=policy)
    rig.publish(topic, "short")
    short = rig.pull(subscription, 1, ack=False)
    rig.publish(topic, "long")
    long = rig.pull(subscription, 1, ack=False)

    rig.deadline(subscription, long, 600)
    rig.deadline(subscription, short, 1)
    again = rig.pull(subscription, 1, ack=False)

    assert bodies(again) == ["short"]
    assert [message.delivery_attempt for message in (*short, *again)] == [1, 2]
    assert again[0].ack_id != short[0].ack_id
    rig.ack(subscription, [*long, *again])
    assert rig.is_empty(subscription)


def test_messages_of_a_key_come_one_by_one_in_order(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic, enable_message_ordering=True)
    rig.publish(topic, "a1", "a2", "a3", key="a")
    rig.publish(topic, "b1", key="b")

    first = rig.pull(subscription, 2, ack=False)
    assert sorted(bodies(first)) == ["a1", "b1"]
    assert rig.is_empty(subscription)
    rig.nack(subscription, first)

    assert [body for body in bodies(rig.pull(subscription, 4)) if body[0] == "a"] == ["a1", "a2", "a3"]


def test_a_pull_waits_for_a_message(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    timer = Timer(0.2, rig.publish, (topic, "late"))
    timer.start()

    answer = rig.subscriber.pull(subscription=subscription, max_messages=10, timeout=60)

    timer.join()

    assert bodies(answer.received_messages) == ["late"]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({}, "must have data or at least one attribute"),
        ({"data": b"x", "ordering_key": "k" * 1025}, "at most 1024 bytes"),
        ({"data": b"x", "attributes": {"k" * 257: "v"}}, "at most 256"),
        ({"data": b"x", "attributes": {"k": "v" * 1025}}, "at most 1024"),
        ({"data": b"x", "attributes": {"googclient_x": "v"}}, "reserved prefix"),
        ({"data": b"x", "attributes": {str(n): "v" for n in range(101)}}, "at most 100 attributes"),
        ({"data": b"x" * 10_000_001}, "at most 10000000 bytes"),
    ],
)
def test_a_message_that_is_not_fit_is_refused_with_its_whole_request(
    memory_rig: Rig, message: dict[str, Any], problem: str
) -> None:
    topic = memory_rig.topic()
    subscription = memory_rig.subscription(topic)

    with pytest.raises(InvalidArgument, match=problem):
        memory_rig.requests.publish(topic=topic, messages=[{"data": b"fine"}, message])

    assert memory_rig.is_empty(subscription)


@pytest.mark.parametrize("count", [0, 1001])
def test_a_publish_has_up_to_a_thousand_messages(memory_rig: Rig, count: int) -> None:
    with pytest.raises(InvalidArgument, match="1 to 1000 messages"):
        memory_rig.requests.publish(topic=memory_rig.topic(), messages=[{"data": b"x"}] * count)


def test_a_large_message_arrives_whole(rig: Rig) -> None:
    topic = rig.topic()
    subscription = rig.subscription(topic)
    body = "x" * 4_000_000

    rig.publish(topic, body, "small")

    assert sorted(map(len, bodies(rig.pull(subscription, 2)))) == [5, 4_000_000]


def test_what_does_not_exist_is_not_found(memory_rig: Rig) -> None:
    topic = memory_rig.name("topics")
    subscription = memory_rig.name("subscriptions")

    with pytest.raises(NotFound, match=f"Topic not found: {topic}"):
        memory_rig.requests.publish(topic=topic, messages=[{"data": b"x"}])
    with pytest.raises(NotFound, match=f"Subscription not found: {subscription}"):
        memory_rig.subscriber.pull(subscription=subscription, max_messages=1)
    with pytest.raises(NotFound, match=f"Subscription not found: {subscription}"):
        memory_rig.subscriber.acknowledge(subscription=subscription, ack_ids=["x"])


def test_deadlines_and_pulls_out_of_range_are_refused(memory_rig: Rig) -> None:
    subscription = memory_rig.subscription(memory_rig.topic())
    subscriber = memory_rig.subscriber

    with pytest.raises(InvalidArgument, match="between 0 and 600 seconds, got 601"):
        subscriber.modify_ack_deadline(subscription=subscription, ack_ids=["x"], ack_deadline_seconds=601)
    with pytest.raises(InvalidArgument, match="max_messages must be at least 1"):
        subscriber.pull(subscription=subscription, max_messages=0)
    with pytest.raises(InvalidArgument, match="at least one delivery"):
        subscriber.acknowledge(subscription=subscription, ack_ids=[])


def test_a_message_that_failed_too_often_goes_to_the_dead_letter_topic(rig: Rig) -> None:
    graves = rig.topic()
    topic = rig.topic()
    graveyard = rig.subscription(graves)
    policy = {"dead_letter_topic": graves, "max_delivery_attempts": 5}
    subscription = rig.subscription(topic, dead_letter_policy=policy)
    (message_id,) = rig.publish(topic, "poison", colour="green")

    attempts = []
    for _ in range(5):
        received = rig.pull(subscription, 1, ack=False)
        attempts.append(received[0].delivery_attempt)
        rig.nack(subscription, received)
    (dead,) = rig.pull(graveyard, 1)

    assert attempts == [1, 2, 3, 4, 5]
    assert dead.message.message_id == message_id
    assert dead.message.attributes["colour"] == "green"
    assert dead.message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert dead.message.attributes["CloudPubSubDeadLetterSourceSubscription"] == subscription
    assert rig.is_empty(subscription)


def test_a_retry_policy_holds_a_nacked_message_back(rig: Rig) -> None:
    topic = rig.topic()
    policy = {"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 1}}
    subscription = rig.subscription(topic, retry_policy=policy)
    rig.publish(topic, "patience")

    rig.nack(subscription, rig.pull(subscription, 1, ack=False))

    assert rig.is_empty(subscription)
    wait_until(lambda: bodies(rig.pull(subscription, 1)) == ["patience"])

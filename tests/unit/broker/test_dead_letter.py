"""Dead letters (BROKER-5): what the copy carries, and that nothing is lost on the way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.message import InternalMessage
from penstock.broker.options import DeadLetterPolicy
from penstock.domain.retry import RetryPolicy
from tests.rigs.broker import DURABLE, LOCAL, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig

UNDERTAKER = "undertaker"


@pytest.fixture(params=LOCAL)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


on_durable_stores = pytest.mark.parametrize("rig", DURABLE, indirect=True)


def policy(attempts: int = 1, topic: str = "dead") -> DeadLetterPolicy:
    return DeadLetterPolicy(dead_letter_topic=topic, max_delivery_attempts=attempts)


def fail(rig: BrokerRig, times: int = 1, name: str = SUBSCRIPTION) -> None:
    """Pull the one message that is available and give it back, some times."""
    for _ in range(times):
        rig.queue.nack(rig.pull_one(name).ack_id)


def test_the_copy_says_where_it_came_from(rig: BrokerRig) -> None:
    rig.subscribe(UNDERTAKER, "dead")
    rig.subscribe(dead_letter_policy=policy(attempts=2))
    (message_id,) = rig.queue.publish(TOPIC, [InternalMessage(b"poison", {"colour": "red"}, "key")])
    rig.clock.advance(60)
    fail(rig, times=2)

    dead = rig.pull_one(UNDERTAKER)

    assert (dead.id, dead.data, dead.ordering_key, dead.delivery_attempt) == (message_id, b"poison", "key", 1)
    assert dead.publish_time_ms == 1_700_000_000_000
    assert dead.attributes == {
        "colour": "red",
        "CloudPubSubDeadLetterSourceSubscription": SUBSCRIPTION,
        "CloudPubSubDeadLetterSourceDeliveryCount": "2",
        "CloudPubSubDeadLetterSourceTopicPublishTime": "2023-11-14T22:13:20.000+00:00",
    }


def test_the_copy_counts_with_the_attributes_it_gained(rig: BrokerRig) -> None:
    rig.subscribe(UNDERTAKER, "dead")
    rig.subscribe(dead_letter_policy=policy())
    rig.publish("poison")
    before = rig.queue.counters(SUBSCRIPTION).total_bytes
    fail(rig)

    after = rig.queue.counters(UNDERTAKER).total_bytes
    dead = rig.pull_one(UNDERTAKER)

    assert after - before == sum(len(key) + len(value) for key, value in dead.attributes.items())


def test_other_subscriptions_keep_their_copy(rig: BrokerRig) -> None:
    rig.subscribe(UNDERTAKER, "dead")
    rig.subscribe(dead_letter_policy=policy())
    rig.subscribe("patient")
    rig.publish("a")
    fail(rig)

    other = rig.pull_one("patient")

    assert other.attributes == {}
    rig.queue.ack(other.ack_id)
    assert rig.queue.counters(UNDERTAKER).total == 1


@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_a_key_whose_head_went_to_the_dead_letters_moves_on(rig: BrokerRig, end: str) -> None:
    rig.subscribe(UNDERTAKER, "dead")
    rig.subscribe(dead_letter_policy=policy(attempts=2), message_ordering=True)
    rig.publish("poison", "next", "last", key="key")

    for _ in range(2):
        message = rig.pull_one()
        assert message.data == b"poison"
        if end == "nack":
            rig.queue.nack(message.ack_id)
        else:
            rig.clock.advance(10)

    assert rig.pull_texts() == ["next"]
    assert rig.pull_texts(name=UNDERTAKER) == ["poison"]
    assert rig.pull() == []


def test_dead_letters_keep_the_order_of_their_key(rig: BrokerRig) -> None:
    rig.subscribe(UNDERTAKER, "dead", message_ordering=True)
    rig.subscribe(dead_letter_policy=policy(), message_ordering=True)
    rig.publish("1", "2", "3", key="key")
    fail(rig, times=3)

    seen = []
    while pulled := rig.pull(name=UNDERTAKER):
        seen += [message.data for message in pulled]
        rig.queue.ack(pulled[0].ack_id)
    assert seen == [b"1", b"2", b"3"]


def test_many_that_expire_at_once_all_go(rig: BrokerRig) -> None:
    rig.subscribe(UNDERTAKER, "dead")
    rig.subscribe(dead_letter_policy=policy())
    rig.publish(*map(str, range(50)))
    rig.pull()

    rig.clock.advance(10)

    assert rig.queue.counters(SUBSCRIPTION).total == 0
    assert rig.pull_texts(name=UNDERTAKER) == [str(number) for number in range(50)]


def test_a_topic_for_dead_letters_that_nobody_reads_discards_them(rig: BrokerRig) -> None:
    rig.queue.register_topic("dead")
    rig.subscribe(dead_letter_policy=policy())
    rig.publish("a")
    fail(rig)

    assert rig.queue.counters(SUBSCRIPTION).total == 0


@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_a_missing_dead_letter_topic_keeps_the_message(rig: BrokerRig, end: str) -> None:
    rig.subscribe(dead_letter_policy=policy(attempts=2))
    rig.publish("a")

    for attempt in range(1, 6):
        message = rig.pull_one()
        assert message.delivery_attempt == attempt
        if end == "nack":
            rig.queue.nack(message.ack_id)
        else:
            rig.clock.advance(10)
        assert rig.queue.counters(SUBSCRIPTION).visible == 1


def test_a_message_kept_for_want_of_a_topic_goes_when_there_is_one(rig: BrokerRig) -> None:
    rig.subscribe(dead_letter_policy=policy(attempts=1))
    rig.publish("a")
    fail(rig, times=3)

    rig.subscribe(UNDERTAKER, "dead")
    assert rig.pull(name=UNDERTAKER) == []
    fail(rig)

    dead = rig.pull_one(UNDERTAKER)
    assert dead.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "4"
    assert rig.queue.counters(SUBSCRIPTION).total == 0


def test_a_message_kept_for_want_of_a_topic_holds_its_key(rig: BrokerRig) -> None:
    rig.subscribe(dead_letter_policy=policy(), message_ordering=True)
    rig.publish("head", "next", key="key")
    fail(rig, times=2)

    head = rig.pull_one()
    assert head.data == b"head"
    rig.queue.ack(head.ack_id)
    assert rig.pull_texts() == ["next"]


@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_a_message_kept_for_want_of_a_topic_backs_off(rig: BrokerRig, end: str) -> None:
    retry = RetryPolicy(minimum_backoff_s=10, maximum_backoff_s=60)
    rig.subscribe(dead_letter_policy=policy(attempts=2), retry_policy=retry)
    rig.publish("a")

    for delay_s in (10, 20, 40, 60):
        message = rig.pull_one()
        if end == "nack":
            rig.queue.nack(message.ack_id)
        else:
            rig.clock.advance(10)
        rig.clock.advance(delay_s - 0.001)
        assert rig.pull() == []
        rig.clock.advance(0.001)
    assert rig.pull_one().delivery_attempt == 5


@on_durable_stores
def test_a_message_kept_for_want_of_a_topic_keeps_its_attempts_over_a_crash(rig: BrokerRig) -> None:
    rig.subscribe(dead_letter_policy=policy(attempts=1))
    rig.publish("a")
    fail(rig, times=3)

    rig.crash()

    assert rig.pull_one().delivery_attempt == 4


def test_a_dead_letter_may_die_again(rig: BrokerRig) -> None:
    rig.subscribe("final", "grave")
    rig.subscribe(UNDERTAKER, "dead", dead_letter_policy=policy(topic="grave"))
    rig.subscribe(dead_letter_policy=policy())
    (message_id,) = rig.publish("a")

    fail(rig)
    fail(rig, name=UNDERTAKER)

    dead = rig.pull_one("final")
    assert dead.id == message_id
    assert dead.attributes["CloudPubSubDeadLetterSourceSubscription"] == UNDERTAKER


def test_a_topic_may_be_its_own_dead_letter_topic(rig: BrokerRig) -> None:
    rig.subscribe(dead_letter_policy=policy(topic=TOPIC))
    (message_id,) = rig.publish("a")

    fail(rig, times=3)

    again = rig.pull_one()
    assert (again.id, again.delivery_attempt) == (message_id, 1)
    assert rig.queue.counters(SUBSCRIPTION).total == 1


@on_durable_stores
def test_a_dead_letter_is_durable_and_gone_from_where_it_was(rig: BrokerRig) -> None:
    rig.subscribe(UNDERTAKER, "dead")
    rig.subscribe(dead_letter_policy=policy(), message_ordering=True)
    rig.queue.publish(
        TOPIC, [InternalMessage(b"poison", {"colour": "red"}, "key"), InternalMessage(b"next", {}, "key")]
    )
    fail(rig)

    rig.crash()

    assert rig.pull_texts() == ["next"]
    dead = rig.pull_one(UNDERTAKER)
    assert (dead.data, dead.ordering_key, dead.publish_time_ms) == (b"poison", "key", 1_700_000_000_000)
    assert dead.attributes["colour"] == "red"
    assert dead.attributes["CloudPubSubDeadLetterSourceSubscription"] == SUBSCRIPTION


@on_durable_stores
def test_the_attempts_of_a_message_survive_a_restart(rig: BrokerRig) -> None:
    rig.subscribe(UNDERTAKER, "dead")
    rig.subscribe(dead_letter_policy=policy(attempts=3))
    rig.publish("poison")
    fail(rig, times=2)

    rig.crash()
    fail(rig)

    assert rig.queue.counters(SUBSCRIPTION).total == 0
    assert rig.pull_texts(name=UNDERTAKER) == ["poison"]

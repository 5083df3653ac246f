"""Subscription options and names: what is refused, and that a refused one leaves nothing behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.errors import InvalidOptions
from penstock.broker.options import DeadLetterPolicy, FlowControl, Overflow, SubscriptionOptions
from penstock.domain.retry import RetryPolicy
from tests.rigs.broker import EVERYWHERE, LOCAL, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig, refused


@pytest.fixture(params=LOCAL)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


def test_defaults_are_those_of_the_specification() -> None:
    options = SubscriptionOptions()

    assert options.ack_deadline_seconds == 10
    assert options.message_ordering is False
    assert options.flow_control == FlowControl(max_messages=None, max_bytes=None)
    assert options.retry_policy is None
    assert options.dead_letter_policy is None
    assert options.message_retention_seconds == 7 * 24 * 3600
    assert (options.max_messages, options.max_bytes) == (10_000, 100 * 1024 * 1024)
    assert options.overflow is Overflow.DROP


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ack_deadline_seconds": 9}, "ack_deadline_seconds must be between 10 and 600, got 9"),
        ({"ack_deadline_seconds": 601}, "ack_deadline_seconds must be between 10 and 600, got 601"),
        ({"message_retention_seconds": 0}, "message_retention_seconds must be at least 1, got 0"),
        ({"max_messages": 0}, "max_messages must be at least 1, got 0"),
        ({"max_bytes": 0}, "max_bytes must be at least 1, got 0"),
        ({"flow_control": FlowControl(max_messages=0)}, "flow_control.max_messages must be at least 1, got 0"),
        ({"flow_control": FlowControl(max_bytes=-5)}, "flow_control.max_bytes must be at least 1, got -5"),
        (
            {"dead_letter_policy": DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=0)},
            "dead_letter_policy.max_delivery_attempts must be at least 1, got 0",
        ),
        (
            {"dead_letter_policy": DeadLetterPolicy(dead_letter_topic="")},
            "a dead-letter topic needs a name of printable characters, got ''",
        ),
        (
            {"retry_policy": RetryPolicy(minimum_backoff_s=-1)},
            "retry_policy.minimum_backoff_s must be at least 0, got -1",
        ),
        (
            {"retry_policy": RetryPolicy(minimum_backoff_s=10, maximum_backoff_s=9)},
            "retry_policy.maximum_backoff_s must be at least 10, got 9",
        ),
        (
            {"retry_policy": RetryPolicy(minimum_backoff_s=float("nan"))},
            "retry_policy.minimum_backoff_s must be at least 0, got nan",
        ),
    ],
)
def test_options_out_of_range_are_refused(rig: BrokerRig, options: dict[str, Any], complaint: str) -> None:
    with refused(3, complaint):
        rig.subscribe(**options)

    assert rig.queue.get_all_subscriptions() == []
    assert rig.queue.get_subscriptions_for_topic(TOPIC) == []


@pytest.mark.parametrize(
    "options",
    [
        {"ack_deadline_seconds": 10.5},
        {"ack_deadline_seconds": "20"},
        {"message_retention_seconds": True},
        {"max_messages": 1.5},
        {"message_ordering": 1},
        {"overflow": "drop"},
        {"retry_policy": RetryPolicy(minimum_backoff_s="1")},  # type: ignore[arg-type]
        {"retry_policy": RetryPolicy(minimum_backoff_s=float("inf"), maximum_backoff_s=float("inf"))},
        {"dead_letter_policy": DeadLetterPolicy(dead_letter_topic=7)},  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_options_of_the_wrong_type_are_refused_and_do_not_spoil_the_store(
    rig: BrokerRig, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOptions):
        rig.subscribe(**options)

    if rig.store.durable:
        rig.crash()
    assert rig.queue.get_all_subscriptions() == []


@pytest.mark.parametrize("name", ["", "\x00", "a\nb", "\x01tombstone", "\ud800"])
def test_names_that_no_store_could_keep_are_refused(rig: BrokerRig, name: str) -> None:
    rig.queue.register_topic(TOPIC)

    with refused(3, f"a topic needs a name of printable characters, got {name!r}"):
        rig.queue.register_topic(name)
    with refused(3, f"a subscription needs a name of printable characters, got {name!r}"):
        rig.queue.register_subscription(name, TOPIC)

    assert [topic.name for topic in rig.queue.get_all_topics()] == [TOPIC]
    assert rig.queue.get_all_subscriptions() == []


@pytest.mark.parametrize("rig", EVERYWHERE, indirect=True)
@pytest.mark.parametrize("name", ["a b", "projects/p/topics/t", "заказы", "🚰", "'; DROP TABLE queues; --", "x" * 1000])
def test_any_printable_name_will_do(rig: BrokerRig, name: str) -> None:
    rig.subscribe(name, name)
    rig.publish("a", topic=name)
    if rig.store.durable:
        rig.crash()

    assert rig.pull_texts(name=name) == ["a"]
    rig.queue.unregister_topic(name)
    assert rig.queue.subscription_exists(name)


def test_the_same_subscription_again_stays_as_it_is_with_its_messages(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=20)
    rig.publish("kept")
    before = rig.queue.get_subscription(SUBSCRIPTION)
    rig.clock.advance(5)

    rig.subscribe(ack_deadline_seconds=20)

    assert rig.queue.get_subscription(SUBSCRIPTION) == before
    assert rig.pull_texts() == ["kept"]


def test_a_name_with_another_topic_or_other_options_is_taken(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=20)
    rig.queue.register_topic("invoices")
    complaint = f"Subscription already exists with another topic or other options: {SUBSCRIPTION}"

    with refused(6, complaint):
        rig.subscribe(ack_deadline_seconds=21)
    with refused(6, complaint):
        rig.queue.register_subscription(SUBSCRIPTION, "invoices", SubscriptionOptions(ack_deadline_seconds=20))

    found = rig.queue.get_subscription(SUBSCRIPTION)
    assert found is not None
    assert (found.topic, found.options.ack_deadline_seconds) == (TOPIC, 20)


def test_subscription_metadata_tells_when_it_was_made(rig: BrokerRig) -> None:
    rig.clock.advance(1.5)
    rig.subscribe()

    found = rig.queue.get_subscription(SUBSCRIPTION)

    assert found is not None
    assert found.created.timestamp() == 1_700_000_001.5
    assert not found.detached


def test_messages_past_their_retention_are_dropped(rig: BrokerRig) -> None:
    rig.subscribe(message_retention_seconds=60)
    rig.subscribe("week")
    rig.publish("old")
    rig.clock.advance(30)
    rig.publish("young")

    rig.clock.advance(29.999)
    assert rig.queue.counters(SUBSCRIPTION).total == 2
    rig.clock.advance(0.001)
    assert rig.pull_texts() == ["young"]
    rig.clock.advance(7 * 24 * 3600 - 60 - 0.001)
    assert rig.pull_texts(name="week") == ["old", "young"]

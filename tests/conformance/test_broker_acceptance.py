"""The broker's thirteen acceptance criteria (AC-001 to AC-013) on every store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.message import InternalMessage
from penstock.broker.message_queue import MessageQueue
from penstock.broker.options import SubscriptionOptions
from penstock.testing.clock import VirtualClock
from tests.rigs.broker import EVERYWHERE, BrokerRig, broker_rig


@pytest.fixture(params=EVERYWHERE)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


@pytest.fixture
def queue(rig: BrokerRig) -> MessageQueue:
    return rig.queue


@pytest.fixture
def clock(rig: BrokerRig) -> VirtualClock:
    return rig.clock


def messages(*bodies: bytes, ordering_key: str | None = None) -> list[InternalMessage]:
    return [
        InternalMessage(data=body, attributes={}, ordering_key=ordering_key, id=f"msg-{number}", delivery_attempt=1)
        for number, body in enumerate(bodies, 1)
    ]


def test_ac_001_singleton_pattern() -> None:
    MessageQueue.reset_instance()
    try:
        queue1 = MessageQueue.get_instance()
        queue2 = MessageQueue.get_instance()

        assert queue1 is queue2
    finally:
        MessageQueue.reset_instance()


def test_ac_002_register_and_check_topic(queue: MessageQueue) -> None:
    assert queue.topic_exists("test-topic") is False

    queue.register_topic("test-topic")

    assert queue.topic_exists("test-topic") is True


def test_ac_003_publish_and_pull_messages(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")

    message_ids = queue.publish("test-topic", messages(b"Hello"))
    assert len(message_ids) == 1

    pulled = queue.pull("test-sub", 10)
    assert len(pulled) == 1
    assert pulled[0].data == b"Hello"
    assert pulled[0].id == message_ids[0]


def test_ac_004_multiple_subscriptions_receive_copies(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("sub-1", "test-topic")
    queue.register_subscription("sub-2", "test-topic")

    queue.publish("test-topic", messages(b"test"))

    pulled1 = queue.pull("sub-1", 10)
    pulled2 = queue.pull("sub-2", 10)

    assert len(pulled1) == 1
    assert len(pulled2) == 1
    assert pulled1[0].data == pulled2[0].data == b"test"


def test_ac_005_ack_removes_message(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")
    queue.publish("test-topic", messages(b"test"))

    pulled1 = queue.pull("test-sub", 10)
    assert len(pulled1) == 1

    queue.ack(pulled1[0].ack_id)

    assert queue.pull("test-sub", 10) == []


def test_ac_006_nack_redelivers_immediately(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")
    queue.publish("test-topic", messages(b"test"))

    pulled1 = queue.pull("test-sub", 10)
    assert pulled1[0].delivery_attempt == 1

    queue.nack(pulled1[0].ack_id)

    pulled2 = queue.pull("test-sub", 10)
    assert len(pulled2) == 1
    assert pulled2[0].delivery_attempt == 2


def test_ac_007_ack_deadline_expiry_redelivers(queue: MessageQueue, clock: VirtualClock) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic", SubscriptionOptions(ack_deadline_seconds=10))
    queue.publish("test-topic", messages(b"test"))

    pulled1 = queue.pull("test-sub", 10)
    assert len(pulled1) == 1

    clock.advance(10.1)

    pulled2 = queue.pull("test-sub", 10)
    assert len(pulled2) == 1
    assert pulled2[0].delivery_attempt == 2


def test_ac_008_modify_ack_deadline(queue: MessageQueue, clock: VirtualClock) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic", SubscriptionOptions(ack_deadline_seconds=10))
    queue.publish("test-topic", messages(b"test"))

    pulled1 = queue.pull("test-sub", 10)
    queue.modify_ack_deadline(pulled1[0].ack_id, 15)

    # Past the original deadline, within the extended one.
    clock.advance(12)

    assert queue.pull("test-sub", 10) == []

    queue.ack(pulled1[0].ack_id)
    clock.advance(600)
    assert queue.pull("test-sub", 10) == []


def test_ac_009_message_ordering(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic", SubscriptionOptions(message_ordering=True))
    queue.publish("test-topic", messages(b"first", b"second", ordering_key="user-123"))

    pulled1 = queue.pull("test-sub", 10)
    assert len(pulled1) == 1
    assert pulled1[0].data == b"first"

    assert queue.pull("test-sub", 10) == []

    queue.ack(pulled1[0].ack_id)

    pulled3 = queue.pull("test-sub", 10)
    assert len(pulled3) == 1
    assert pulled3[0].data == b"second"


def test_ac_010_publish_without_subscriptions(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")

    message_ids = queue.publish("test-topic", messages(b"test"))

    assert len(message_ids) == 1


def test_ac_011_get_subscriptions_for_topic(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("sub-1", "test-topic")
    queue.register_subscription("sub-2", "test-topic")

    subscriptions = queue.get_subscriptions_for_topic("test-topic")

    assert [subscription.name for subscription in subscriptions] == ["sub-1", "sub-2"]


def test_ac_012_unregister_topic_detaches_subscriptions(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")

    queue.unregister_topic("test-topic")

    assert queue.topic_exists("test-topic") is False
    assert queue.subscription_exists("test-sub") is True

    subscription = queue.get_subscription("test-sub")
    assert subscription is not None
    assert subscription.topic == "test-topic"
    assert subscription.detached


def test_ac_013_fifo_message_ordering_without_ordering_key(queue: MessageQueue) -> None:
    queue.register_topic("test-topic")
    queue.register_subscription("test-sub", "test-topic")
    queue.publish("test-topic", messages(b"A", b"B", b"C"))

    pulled = queue.pull("test-sub", 10)

    assert [message.data for message in pulled] == [b"A", b"B", b"C"]

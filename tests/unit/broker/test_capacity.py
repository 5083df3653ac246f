"""A subscription at its capacity (BROKER-4): drops are counted and reported, or the publish is refused."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.errors import SubscriptionFull
from penstock.broker.message import InternalMessage
from penstock.broker.message_queue import MessageQueue
from penstock.broker.options import DeadLetterPolicy, Overflow, SubscriptionOptions
from penstock.domain.ids import TsidFactory
from penstock.testing.clock import VirtualClock
from tests.rigs.broker import DURABLE, LOCAL, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig, refused


@pytest.fixture(params=LOCAL)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "penstock.broker")
    return caplog


def test_drops_are_counted_and_warned_of_once_a_minute(rig: BrokerRig, log: pytest.LogCaptureFixture) -> None:
    rig.subscribe(max_messages=1)
    rig.publish("kept", "dropped")
    assert len(log.records) == 1

    for _ in range(59):
        rig.clock.advance(1)
        rig.publish("dropped")
    assert len(log.records) == 1
    rig.clock.advance(1)
    rig.publish("dropped", "dropped")

    assert len(log.records) == 2
    assert log.records[0].levelno == logging.WARNING
    assert "(1 so far)" in log.records[0].getMessage()
    assert "(62 so far)" in log.records[1].getMessage()
    assert rig.queue.dropped(SUBSCRIPTION) == 62


def test_each_full_subscription_is_warned_of(rig: BrokerRig, log: pytest.LogCaptureFixture) -> None:
    rig.subscribe("one", max_messages=1)
    rig.subscribe("two", max_messages=1)
    rig.subscribe("roomy")

    rig.publish("kept", "dropped")

    assert [vars(record)["queue"] for record in log.records] == ["one", "two"]


def test_the_first_drop_is_warned_of_by_any_clock(log: pytest.LogCaptureFixture) -> None:
    queue = MessageQueue(VirtualClock(start_ms=0), TsidFactory(1))
    queue.register_topic(TOPIC)
    queue.register_subscription(SUBSCRIPTION, TOPIC, SubscriptionOptions(max_messages=1))

    queue.publish(TOPIC, [InternalMessage(b"kept"), InternalMessage(b"dropped")])

    assert len(log.records) == 1


def test_of_one_publish_what_fits_is_kept(rig: BrokerRig) -> None:
    rig.subscribe("scale")
    rig.publish("")
    overhead = rig.queue.counters("scale").total_bytes
    rig.subscribe(max_bytes=2 * overhead + 20)

    rig.publish("a" * 10, "b" * 11, "c" * 10, "d")

    assert rig.pull_texts() == ["a" * 10, "c" * 10]
    assert rig.queue.dropped(SUBSCRIPTION) == 2


@pytest.mark.parametrize("rig", DURABLE, indirect=True)
def test_a_dropped_message_does_not_come_back_after_a_restart(rig: BrokerRig) -> None:
    rig.subscribe(max_messages=2)
    rig.subscribe("full", max_messages=1)
    rig.publish("1", "2", "3")
    rig.publish("4")

    rig.restart()

    assert rig.pull_texts() == ["1", "2"]
    assert rig.pull_texts(name="full") == ["1"]
    assert rig.queue.counters(SUBSCRIPTION).total == 2


def test_messages_in_flight_and_backing_off_count(rig: BrokerRig) -> None:
    rig.subscribe(max_messages=2)
    rig.publish("1", "2")
    rig.pull(1)

    rig.publish("3")

    assert rig.queue.dropped(SUBSCRIPTION) == 1


def test_a_publish_that_is_refused_counts_and_warns_of_no_drops(rig: BrokerRig, log: pytest.LogCaptureFixture) -> None:
    rig.subscribe("dropping", max_messages=1)
    rig.subscribe("rejecting", max_messages=1, overflow=Overflow.REJECT)
    rig.publish("1")

    with pytest.raises(SubscriptionFull, match="rejecting is at its capacity"):
        rig.publish("2")

    assert rig.queue.dropped("dropping") == rig.queue.dropped("rejecting") == 0
    assert log.records == []


def test_a_subscription_that_rejects_does_so_by_bytes_too(rig: BrokerRig) -> None:
    rig.subscribe(max_bytes=100, overflow=Overflow.REJECT)

    with refused(8):
        rig.publish("x" * 100)

    assert rig.queue.counters(SUBSCRIPTION).total == 0
    rig.publish("x")
    assert rig.pull_texts() == ["x"]


def test_dead_letters_are_never_dropped(rig: BrokerRig) -> None:
    rig.subscribe("undertaker", "dead", max_messages=1)
    rig.subscribe(dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=1))
    rig.publish("1", "2", "3")

    for message in rig.pull():
        rig.queue.nack(message.ack_id)

    assert rig.pull_texts(name="undertaker") == ["1", "2", "3"]
    assert rig.queue.dropped("undertaker") == 0

"""Ordering keys (BROKER-6): what comes back is next of its key, and nothing of the key passes it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.message import InternalMessage
from penstock.broker.options import FlowControl
from penstock.domain.retry import RetryPolicy
from tests.rigs.broker import DURABLE, LOCAL, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig

BACKOFF = RetryPolicy(minimum_backoff_s=30, maximum_backoff_s=600)


@pytest.fixture(params=LOCAL)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


def give_up(rig: BrokerRig, message: InternalMessage, end: str) -> None:
    if end == "nack":
        rig.queue.nack(message.ack_id)
    else:
        rig.clock.advance(10)


@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_a_message_that_came_back_is_next_of_its_key(rig: BrokerRig, end: str) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish("1", "2", "3", key="key")
    first = rig.pull_one()
    give_up(rig, first, end)
    rig.publish("4", key="key")

    seen = []
    while pulled := rig.pull():
        seen += [(message.data.decode(), message.delivery_attempt) for message in pulled]
        rig.queue.ack(pulled[0].ack_id)
    assert seen == [("1", 2), ("2", 1), ("3", 1), ("4", 1)]


@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_nothing_of_the_key_passes_a_message_that_backs_off(rig: BrokerRig, end: str) -> None:
    rig.subscribe(message_ordering=True, retry_policy=BACKOFF)
    rig.publish("1", "2", key="key")
    rig.publish("other", key="other")
    rig.publish("free")
    first = next(message for message in rig.pull() if message.data == b"1")
    if end == "expiry":
        rig.clock.advance(10)
        assert rig.queue.counters(SUBSCRIPTION).delayed == 3
    else:
        rig.queue.nack(first.ack_id)

    rig.publish("3", key="key")
    rig.clock.advance(29.999)
    assert "2" not in rig.pull_texts()
    assert rig.queue.counters(SUBSCRIPTION).visible == 2
    rig.clock.advance(0.001)
    assert "1" in rig.pull_texts()


def test_other_keys_go_on_while_one_backs_off(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True, retry_policy=BACKOFF)
    rig.publish("a1", "a2", key="a")
    rig.queue.nack(rig.pull_one().ack_id)
    rig.publish("b1", key="b")
    rig.publish("free")

    assert sorted(rig.pull_texts()) == ["b1", "free"]


def test_a_key_is_free_again_after_its_last_message_was_acked(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    for body in ("1", "2", "3"):
        rig.publish(body, key="key")
        message = rig.pull_one()
        assert message.data.decode() == body
        rig.queue.ack(message.ack_id)


def test_an_extended_message_holds_its_key(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish("1", "2", key="key")
    first = rig.pull_one()
    rig.queue.modify_ack_deadline(first.ack_id, 100)

    rig.clock.advance(50)
    assert rig.pull() == []
    rig.queue.ack(first.ack_id)
    assert rig.pull_texts() == ["2"]


def test_a_busy_key_does_not_starve_the_others(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish(*(f"busy{number}" for number in range(100)), key="busy")
    rig.publish("quiet", key="quiet")
    rig.publish("free")

    assert sorted(rig.pull_texts(3)) == ["busy0", "free", "quiet"]


def test_flow_control_does_not_reorder_a_key(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True, flow_control=FlowControl(max_bytes=400))
    for number in range(4):
        rig.publish(f"a{number}" + "x" * 150, key="a")
        rig.publish(f"b{number}" + "x" * 350, key="b")

    seen: dict[str, list[str]] = {"a": [], "b": []}
    while pulled := rig.pull():
        for message in pulled:
            seen[message.ordering_key or ""].append(message.data[:2].decode())
            rig.queue.ack(message.ack_id)
    assert seen == {key: [f"{key}{number}" for number in range(4)] for key in "ab"}


@pytest.mark.parametrize("rig", DURABLE, indirect=True)
@pytest.mark.parametrize("how", ["restart", "crash"])
def test_order_holds_over_a_restart(rig: BrokerRig, how: str) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish("a1", "a2", "a3", key="a")
    rig.publish("b1", "b2", key="b")
    for message in rig.pull():
        if message.data == b"b1":
            rig.queue.ack(message.ack_id)
    rig.queue.publish(TOPIC, [InternalMessage(b"a4", ordering_key="a"), InternalMessage(b"b3", ordering_key="b")])

    getattr(rig, how)()

    seen: dict[str, list[str]] = {"a": [], "b": []}
    while pulled := rig.pull():
        assert len({message.ordering_key for message in pulled}) == len(pulled)
        for message in pulled:
            seen[message.ordering_key or ""].append(message.data.decode())
            rig.queue.ack(message.ack_id)
    assert seen == {"a": ["a1", "a2", "a3", "a4"], "b": ["b2", "b3"]}

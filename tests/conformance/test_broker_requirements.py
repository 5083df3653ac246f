"""The broker's twenty-two requirements (BR-001 to BR-022), each part of them, on every kind of store."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from penstock.broker.message import InternalMessage
from penstock.broker.message_queue import MessageQueue
from penstock.broker.options import DeadLetterPolicy, FlowControl, Overflow
from penstock.domain.retry import RetryPolicy
from penstock.engine.store.memory import MemoryStore
from tests.rigs.broker import EVERYWHERE, LOCAL, SUBSCRIPTION, TOPIC, BrokerRig, broker_rig, refused, texts

MIB = 1024 * 1024

on_every_store = pytest.mark.parametrize("rig", EVERYWHERE, indirect=True)


@pytest.fixture(params=LOCAL)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerRig]:
    with broker_rig(request, tmp_path) as rig:
        yield rig


# BR-001


def test_br_001_singleton_instance_is_the_same_every_time() -> None:
    MessageQueue.reset_instance()
    try:
        first = MessageQueue.get_instance()
        first.register_topic(TOPIC)

        assert MessageQueue.get_instance() is first
        assert MessageQueue.get_instance().topic_exists(TOPIC)
    finally:
        MessageQueue.reset_instance()


def test_br_001_singleton_instance_initialization_is_thread_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = 50
    made: list[MessageQueue] = []
    another = Event()
    init = MessageQueue.__init__

    def counting_init(self: MessageQueue, *arguments: object) -> None:
        if made:
            another.set()
        made.append(self)
        another.wait(timeout=0.1)  # leaves every other thread the time to make a second one
        init(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageQueue, "__init__", counting_init)
    start = Barrier(threads)

    def get(_: int) -> MessageQueue:
        start.wait(timeout=30)
        return MessageQueue.get_instance()

    MessageQueue.reset_instance()
    try:
        with ThreadPoolExecutor(threads) as pool:
            instances = list(pool.map(get, range(threads)))

        assert len(made) == 1
        assert all(instance is made[0] for instance in instances)
    finally:
        MessageQueue.reset_instance()


# BR-002


@on_every_store
def test_br_002_register_topic_creates_an_entry_with_metadata(rig: BrokerRig) -> None:
    now = datetime.fromtimestamp(rig.clock.now_ms() / 1000, UTC)
    assert rig.queue.get_topic(TOPIC) is None
    assert rig.queue.get_all_topics() == []

    rig.queue.register_topic(TOPIC)
    rig.queue.register_topic("invoices")

    topic = rig.queue.get_topic(TOPIC)
    assert topic is not None
    assert (topic.name, topic.created) == (TOPIC, now)
    assert [topic.name for topic in rig.queue.get_all_topics()] == ["invoices", TOPIC]


def test_br_002_register_topic_starts_with_an_empty_queue(rig: BrokerRig) -> None:
    rig.subscribe()

    assert rig.queue.counters(SUBSCRIPTION).total == 0
    assert rig.pull() == []


def test_br_002_register_topic_again_keeps_it_with_its_messages(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("kept")
    created = rig.queue.get_topic(TOPIC)
    rig.clock.advance(5)

    rig.queue.register_topic(TOPIC)

    assert rig.queue.get_topic(TOPIC) == created
    assert rig.pull_texts() == ["kept"]


# BR-003


@on_every_store
def test_br_003_publish_returns_unique_ids_in_the_order_of_the_messages(rig: BrokerRig) -> None:
    rig.subscribe()

    ids = rig.publish("a", "b", "c") + rig.publish("d")

    assert len(set(ids)) == 4
    assert [(message.id, message.data) for message in rig.pull()] == list(
        zip(ids, [b"a", b"b", b"c", b"d"], strict=True)
    )


def test_br_003_publish_gives_its_own_ids_not_the_callers(rig: BrokerRig) -> None:
    rig.subscribe()

    ids = rig.queue.publish(TOPIC, [InternalMessage(b"a", id="mine"), InternalMessage(b"b", id="mine")])

    assert "mine" not in ids
    assert [message.id for message in rig.pull()] == ids


def test_br_003_message_ids_are_unique_across_topics_and_increase(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.subscribe("audit", "invoices")

    ids = []
    for _ in range(50):
        ids += rig.publish("a", "b", topic=TOPIC)
        ids += rig.publish("c", topic="invoices")

    assert len(set(ids)) == 150
    assert ids == sorted(ids)


def test_br_003_publish_sets_the_publish_time(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("first")
    rig.clock.advance(2.5)
    rig.queue.publish(TOPIC, [InternalMessage(b"second", publish_time_ms=1)])
    now = datetime.fromtimestamp(rig.clock.now_ms() / 1000, UTC)
    rig.clock.advance(1)

    first, second = rig.pull()

    assert first.publish_time == now - timedelta(seconds=2.5)
    assert second.publish_time == now


@on_every_store
def test_br_003_publish_copies_messages_to_each_subscription(rig: BrokerRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two")
    rig.subscribe("elsewhere", "invoices")
    rig.queue.publish(TOPIC, [InternalMessage(b"a", {"colour": "red"}, "key")])

    first, second = rig.pull_one("one"), rig.pull_one("two")
    rig.queue.ack(first.ack_id)

    assert first.data == second.data == b"a"
    assert first.attributes == second.attributes == {"colour": "red"}
    assert first.ordering_key == second.ordering_key == "key"
    assert first.id == second.id
    assert first.ack_id != second.ack_id
    assert rig.queue.counters("two").leased == 1
    assert rig.queue.counters("elsewhere").total == 0


def test_br_003_publish_to_a_missing_topic_is_refused(rig: BrokerRig) -> None:
    with refused(5, "Topic not found: test-topic"):
        rig.queue.publish("test-topic", [InternalMessage(b"a")])


# BR-004


@on_every_store
def test_br_004_publish_without_subscriptions_returns_ids_and_discards(rig: BrokerRig) -> None:
    rig.queue.register_topic(TOPIC)

    ids = rig.publish("nobody", "hears")
    rig.subscribe()
    later = rig.publish("heard")

    assert len({*ids, *later}) == 3
    assert rig.pull_texts() == ["heard"]


# BR-005


@on_every_store
def test_br_005_pull_returns_up_to_max_messages(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a", "b", "c", "d", "e")

    assert rig.pull_texts(2) == ["a", "b"]
    assert rig.pull_texts(1) == ["c"]
    assert rig.pull_texts(10) == ["d", "e"]


def test_br_005_pull_creates_a_unique_ack_id_for_each_message(rig: BrokerRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two")
    rig.publish("a", "b", "c")

    pulled = rig.pull(name="one") + rig.pull(name="two")

    assert len({message.ack_id for message in pulled}) == 6


def test_br_005_pull_starts_the_ack_deadline_of_each_message(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=20)
    rig.publish("a", "b")
    rig.pull(1)
    rig.clock.advance(5)
    rig.pull(1)

    rig.clock.advance(14.999)
    assert rig.pull() == []
    rig.clock.advance(0.001)
    assert rig.pull_texts() == ["a"]
    rig.clock.advance(5)
    assert rig.pull_texts() == ["b"]


def test_br_005_pulled_messages_are_in_flight_and_not_available(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a", "b")

    rig.pull(1)

    assert (rig.queue.counters(SUBSCRIPTION).leased, rig.queue.counters(SUBSCRIPTION).visible) == (1, 1)
    assert rig.pull_texts() == ["b"]
    assert rig.pull() == []


def test_br_005_pulled_message_tells_its_attempt_and_length(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("é")

    message = rig.pull_one()

    assert message.delivery_attempt == 1
    assert message.length == 2


def test_br_005_pull_from_a_missing_subscription_is_refused(rig: BrokerRig) -> None:
    with refused(5, "Subscription not found: test-sub"):
        rig.queue.pull("test-sub", 1)


@pytest.mark.parametrize("max_messages", [0, -1])
def test_br_005_pull_of_no_messages_is_refused(rig: BrokerRig, max_messages: int) -> None:
    rig.subscribe()

    with refused(3):
        rig.pull(max_messages)


# BR-006


@on_every_store
def test_br_006_ack_removes_the_message_and_ends_its_tracking(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a", "b")
    first, second = rig.pull()

    rig.queue.ack(first.ack_id)

    counters = rig.queue.counters(SUBSCRIPTION)
    assert (counters.total, counters.leased) == (1, 1)
    with refused(3, f"Invalid ack ID: {first.ack_id}"):
        rig.queue.ack(first.ack_id)
    rig.queue.ack(second.ack_id)
    assert rig.queue.counters(SUBSCRIPTION).total == 0


@on_every_store
def test_br_006_ack_cancels_the_deadline(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=10)
    rig.publish("a")
    rig.queue.ack(rig.pull_one().ack_id)

    rig.clock.advance(3600)

    assert rig.pull() == []
    assert rig.queue.counters(SUBSCRIPTION).total == 0


# BR-007


@on_every_store
def test_br_007_nack_makes_the_message_available_at_once_with_the_next_attempt(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a")

    for attempt in range(1, 6):
        message = rig.pull_one()
        assert (message.data, message.delivery_attempt) == (b"a", attempt)
        rig.queue.nack(message.ack_id)


def test_br_007_nack_returns_the_message_to_its_place_in_the_queue(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a", "b", "c", "d")
    first, second = rig.pull(2)

    rig.queue.nack(second.ack_id)
    rig.queue.nack(first.ack_id)

    assert rig.pull_texts() == ["a", "b", "c", "d"]


def test_br_007_nack_ends_the_in_flight_tracking(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a")
    message = rig.pull_one()

    rig.queue.nack(message.ack_id)

    counters = rig.queue.counters(SUBSCRIPTION)
    assert (counters.leased, counters.leased_bytes, counters.visible) == (0, 0, 1)
    with refused(3, f"Invalid ack ID: {message.ack_id}"):
        rig.queue.nack(message.ack_id)


# BR-008


@on_every_store
def test_br_008_expired_deadline_returns_the_message_with_the_next_attempt(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a")

    for attempt in range(1, 4):
        assert rig.pull_one().delivery_attempt == attempt
        rig.clock.advance(9.999)
        assert rig.pull() == []
        rig.clock.advance(0.001)
        assert rig.queue.counters(SUBSCRIPTION).visible == 1


@pytest.mark.parametrize("seconds", [10, 600])
def test_br_008_ack_deadline_may_be_from_10_to_600_seconds(rig: BrokerRig, seconds: int) -> None:
    rig.subscribe(ack_deadline_seconds=seconds)
    rig.publish("a")
    rig.pull_one()

    rig.clock.advance(seconds - 0.001)
    assert rig.pull() == []
    rig.clock.advance(0.001)
    assert rig.pull_one().delivery_attempt == 2


@pytest.mark.parametrize("seconds", [-1, 0, 9, 601])
def test_br_008_ack_deadline_outside_10_to_600_seconds_is_refused(rig: BrokerRig, seconds: int) -> None:
    with refused(3, f"ack_deadline_seconds must be between 10 and 600, got {seconds}"):
        rig.subscribe(ack_deadline_seconds=seconds)
    assert not rig.queue.subscription_exists(SUBSCRIPTION)


def test_br_008_expired_message_waits_for_its_backoff(rig: BrokerRig) -> None:
    rig.subscribe(retry_policy=RetryPolicy(minimum_backoff_s=30, maximum_backoff_s=60))
    rig.publish("a")
    rig.pull_one()

    rig.clock.advance(10)
    assert rig.pull() == []
    rig.clock.advance(29.999)
    assert rig.pull() == []
    rig.clock.advance(0.001)
    assert rig.pull_one().delivery_attempt == 2


# BR-009


@on_every_store
def test_br_009_modify_ack_deadline_extends_the_current_deadline(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=10)
    rig.publish("a")
    ack_id = rig.pull_one().ack_id
    rig.clock.advance(4)

    rig.queue.modify_ack_deadline(ack_id, 15)

    rig.clock.advance(10 + 15 - 4 - 0.001)
    assert rig.pull() == []
    rig.clock.advance(0.001)
    assert rig.pull_one().delivery_attempt == 2


def test_br_009_modify_ack_deadline_allows_multiple_extensions(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=10)
    rig.publish("a")
    ack_id = rig.pull_one().ack_id

    for _ in range(5):
        rig.clock.advance(9)
        assert rig.pull() == []
        rig.queue.modify_ack_deadline(ack_id, 10)

    rig.queue.ack(ack_id)
    assert rig.queue.counters(SUBSCRIPTION).total == 0


def test_br_009_extensions_add_up(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=10)
    rig.publish("a")
    ack_id = rig.pull_one().ack_id

    for seconds in (5, 0, 20):
        rig.queue.modify_ack_deadline(ack_id, seconds)

    rig.clock.advance(34.999)
    assert rig.pull() == []
    rig.clock.advance(0.001)
    assert rig.pull_one().delivery_attempt == 2


def test_br_009_modify_ack_deadline_touches_only_its_own_message(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=10)
    rig.publish("a", "b")
    first, _ = rig.pull()
    rig.queue.modify_ack_deadline(first.ack_id, 100)

    rig.clock.advance(10)

    assert rig.pull_texts() == ["b"]


@pytest.mark.parametrize("end", ["ack", "nack", "expiry"])
def test_br_009_modify_ack_deadline_of_a_message_not_in_flight_is_refused(rig: BrokerRig, end: str) -> None:
    rig.subscribe()
    rig.publish("a")
    ack_id = rig.pull_one().ack_id
    if end == "expiry":
        rig.clock.advance(10)
    else:
        getattr(rig.queue, end)(ack_id)

    with refused(3, f"Invalid ack ID: {ack_id}"):
        rig.queue.modify_ack_deadline(ack_id, 10)


def test_br_009_a_deadline_cannot_be_shortened(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a")

    with refused(3):
        rig.queue.modify_ack_deadline(rig.pull_one().ack_id, -1)


# BR-010


@on_every_store
def test_br_010_message_ordering_delivers_a_key_in_order_one_at_a_time(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish("1", "2", "3", key="a")
    rig.publish("4", key="a")

    seen = []
    while pulled := rig.pull():
        assert len(pulled) == 1
        assert rig.pull() == []
        seen += texts(pulled)
        rig.queue.ack(pulled[0].ack_id)

    assert seen == ["1", "2", "3", "4"]


def test_br_010_message_ordering_lets_different_keys_go_concurrently(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    for key in ("a", "b", "c"):
        rig.publish(f"{key}1", f"{key}2", key=key)

    first = rig.pull()
    assert sorted(texts(first)) == ["a1", "b1", "c1"]

    rig.queue.ack(next(message for message in first if message.ordering_key == "b").ack_id)
    assert rig.pull_texts() == ["b2"]


def test_br_010_messages_without_a_key_are_not_blocked(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish("a1", "a2", "a3", key="a")
    rig.publish("free1", "free2")

    assert sorted(rig.pull_texts()) == ["a1", "free1", "free2"]
    rig.publish("free3")
    assert rig.pull_texts() == ["free3"]


def test_br_010_keys_order_nothing_without_message_ordering(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=False)
    rig.publish("1", "2", "3", key="a")

    pulled = rig.pull()

    assert texts(pulled) == ["1", "2", "3"]
    assert {message.ordering_key for message in pulled} == {"a"}


def test_br_010_an_empty_key_is_no_key(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish("1", "2", key="")

    pulled = rig.pull()

    assert texts(pulled) == ["1", "2"]
    assert [message.ordering_key for message in pulled] == [None, None]


# BR-011


@on_every_store
def test_br_011_unregister_subscription_removes_it_with_messages_and_deadlines(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.subscribe("other")
    rig.publish("leased", "pending")
    leased = rig.pull(1)[0]

    rig.queue.unregister_subscription(SUBSCRIPTION)

    assert not rig.queue.subscription_exists(SUBSCRIPTION)
    assert [found.name for found in rig.queue.get_all_subscriptions()] == ["other"]
    assert [found.name for found in rig.queue.get_subscriptions_for_topic(TOPIC)] == ["other"]
    with refused(5, f"Subscription not found: {SUBSCRIPTION}"):
        rig.pull()
    with refused(3, f"Invalid ack ID: {leased.ack_id}"):
        rig.queue.ack(leased.ack_id)
    rig.clock.advance(3600)
    assert rig.pull_texts(name="other") == ["leased", "pending"]


def test_br_011_a_subscription_made_anew_starts_empty(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("leased", "pending")
    leased = rig.pull(1)[0]
    rig.queue.unregister_subscription(SUBSCRIPTION)

    rig.subscribe()
    rig.clock.advance(3600)

    assert rig.queue.counters(SUBSCRIPTION).total == 0
    assert rig.pull() == []
    with refused(3, f"Invalid ack ID: {leased.ack_id}"):
        rig.queue.ack(leased.ack_id)


def test_br_011_unregister_missing_subscription_is_refused(rig: BrokerRig) -> None:
    with refused(5, "Subscription not found: test-sub"):
        rig.queue.unregister_subscription("test-sub")


# BR-012


@on_every_store
def test_br_012_unregister_topic_removes_it_and_detaches_its_subscriptions(rig: BrokerRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two")
    rig.subscribe("elsewhere", "invoices")
    rig.publish("a", "b")

    rig.queue.unregister_topic(TOPIC)

    assert not rig.queue.topic_exists(TOPIC)
    assert [topic.name for topic in rig.queue.get_all_topics()] == ["invoices"]
    assert rig.queue.get_subscriptions_for_topic(TOPIC) == []
    detached = {found.name: (found.topic, found.detached) for found in rig.queue.get_all_subscriptions()}
    assert detached == {"one": (TOPIC, True), "two": (TOPIC, True), "elsewhere": ("invoices", False)}
    for name in ("one", "two"):
        assert rig.queue.counters(name).total == 0
        assert rig.pull(name=name) == []


def test_br_012_unregister_topic_without_subscriptions(rig: BrokerRig) -> None:
    rig.queue.register_topic(TOPIC)

    rig.queue.unregister_topic(TOPIC)

    assert not rig.queue.topic_exists(TOPIC)
    with refused(5, f"Topic not found: {TOPIC}"):
        rig.publish("a")


def test_br_012_unregister_missing_topic_is_refused(rig: BrokerRig) -> None:
    with refused(5, "Topic not found: test-topic"):
        rig.queue.unregister_topic("test-topic")


def test_br_012_subscribing_to_a_missing_topic_is_refused(rig: BrokerRig) -> None:
    with refused(5, "Topic not found: test-topic"):
        rig.queue.register_subscription("test-sub", "test-topic")
    assert rig.queue.get_subscription("test-sub") is None


# BR-013


@on_every_store
def test_br_013_flow_control_by_count_stops_and_resumes(rig: BrokerRig) -> None:
    rig.subscribe(flow_control=FlowControl(max_messages=2))
    rig.publish("a", "b", "c", "d", "e")

    first, second = rig.pull()
    assert rig.pull() == []
    rig.queue.ack(first.ack_id)
    assert rig.pull_texts() == ["c"]
    rig.queue.nack(second.ack_id)
    assert rig.pull_texts() == ["b"]
    assert rig.pull() == []


def test_br_013_flow_control_by_bytes_stops_and_resumes(rig: BrokerRig) -> None:
    size = message_size(rig, "x" * 1000)
    rig.subscribe(flow_control=FlowControl(max_bytes=2 * size))
    rig.publish(*["x" * 1000] * 3)

    first, second = rig.pull()
    assert rig.pull() == []
    rig.queue.ack(first.ack_id)
    assert len(rig.pull()) == 1
    assert rig.pull() == []
    rig.queue.ack(second.ack_id)
    assert rig.queue.counters(SUBSCRIPTION).leased_bytes == size


def test_br_013_flow_control_never_exceeds_its_bytes_except_for_one_large_message(rig: BrokerRig) -> None:
    rig.subscribe(flow_control=FlowControl(max_bytes=500))
    rig.publish("x" * 1000, "small")

    (large,) = rig.pull()
    assert large.length == 1000
    assert rig.pull() == []
    rig.queue.ack(large.ack_id)
    assert rig.pull_texts() == ["small"]


def test_br_013_both_limits_hold_at_once(rig: BrokerRig) -> None:
    size = message_size(rig, "x")
    rig.subscribe(flow_control=FlowControl(max_messages=3, max_bytes=10 * size))
    rig.subscribe("narrow", flow_control=FlowControl(max_messages=10, max_bytes=2 * size))
    rig.publish(*"xxxxx")

    assert len(rig.pull()) == 3
    assert len(rig.pull(name="narrow")) == 2


def test_br_013_flow_control_resumes_when_deadlines_expire(rig: BrokerRig) -> None:
    rig.subscribe(flow_control=FlowControl(max_messages=1))
    rig.publish("a", "b")
    rig.pull_one()
    assert rig.pull() == []

    rig.clock.advance(10)

    assert rig.pull_texts() == ["a"]


# BR-014


def message_size(rig: BrokerRig, body: str) -> int:
    """The bytes that one message of this body counts for."""
    rig.subscribe("scale", "scales")
    rig.publish(body, topic="scales")
    return rig.queue.counters("scale").total_bytes


@on_every_store
def test_br_014_in_flight_count_and_bytes_per_subscription(rig: BrokerRig) -> None:
    size = message_size(rig, "x" * 100)
    assert size >= 100
    rig.subscribe()
    rig.subscribe("other")
    rig.publish(*["x" * 100] * 4)

    def in_flight(name: str) -> tuple[int, int]:
        counters = rig.queue.counters(name)
        return counters.leased, counters.leased_bytes

    first, second, third = rig.pull(3)
    assert in_flight(SUBSCRIPTION) == (3, 3 * size)
    assert in_flight("other") == (0, 0)
    rig.queue.ack(first.ack_id)
    assert in_flight(SUBSCRIPTION) == (2, 2 * size)
    rig.queue.nack(second.ack_id)
    assert in_flight(SUBSCRIPTION) == (1, size)
    rig.queue.modify_ack_deadline(third.ack_id, 10)
    assert in_flight(SUBSCRIPTION) == (1, size)
    rig.clock.advance(20)
    assert in_flight(SUBSCRIPTION) == (0, 0)


def test_br_014_in_flight_counts_drive_flow_control(rig: BrokerRig) -> None:
    rig.subscribe(flow_control=FlowControl(max_messages=2))
    rig.publish(*"abcdefgh")

    for _ in range(3):
        pulled = rig.pull()
        assert len(pulled) == rig.queue.counters(SUBSCRIPTION).leased == 2
        for message in pulled:
            rig.queue.ack(message.ack_id)
    assert rig.pull_texts() == ["g", "h"]


# BR-015


@on_every_store
@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_br_015_backoff_doubles_up_to_its_maximum(rig: BrokerRig, end: str) -> None:
    rig.subscribe(retry_policy=RetryPolicy(minimum_backoff_s=10, maximum_backoff_s=60))
    rig.publish("a")

    for attempt, delay_s in enumerate((10, 20, 40, 60, 60), 1):
        message = rig.pull_one()
        assert message.delivery_attempt == attempt
        if end == "nack":
            rig.queue.nack(message.ack_id)
        else:
            rig.clock.advance(10)
            assert rig.queue.counters(SUBSCRIPTION).delayed == 1
        rig.clock.advance(delay_s - 0.001)
        assert rig.pull() == []
        rig.clock.advance(0.001)
    assert rig.pull_one().delivery_attempt == 6


def test_br_015_backoff_keeps_only_its_own_message_waiting(rig: BrokerRig) -> None:
    rig.subscribe(retry_policy=RetryPolicy(minimum_backoff_s=10, maximum_backoff_s=60))
    rig.publish("a", "b")
    rig.queue.nack(rig.pull(1)[0].ack_id)

    assert rig.pull_texts() == ["b"]
    assert rig.queue.counters(SUBSCRIPTION).delayed == 1


def test_br_015_without_retry_policy_redelivery_is_immediate(rig: BrokerRig) -> None:
    rig.subscribe(retry_policy=None)
    rig.publish("a")
    rig.queue.nack(rig.pull_one().ack_id)
    rig.pull_one()

    rig.clock.advance(10)

    assert rig.pull_one().delivery_attempt == 3


# BR-016


def dead_letter_rig(rig: BrokerRig, attempts: int = 3, **options: Any) -> None:
    rig.subscribe("undertaker", "dead")
    policy = DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=attempts)
    rig.subscribe(dead_letter_policy=policy, **options)


@on_every_store
@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_br_016_dead_letter_after_the_last_attempt(rig: BrokerRig, end: str) -> None:
    dead_letter_rig(rig, attempts=3)
    rig.publish("poison")

    for attempt in range(1, 4):
        message = rig.pull_one()
        assert message.delivery_attempt == attempt
        assert rig.queue.counters("undertaker").total == 0
        if end == "nack":
            rig.queue.nack(message.ack_id)
        else:
            rig.clock.advance(10)

    assert rig.queue.counters(SUBSCRIPTION).total == 0
    assert rig.pull() == []
    dead = rig.pull_one("undertaker")
    assert (dead.data, dead.delivery_attempt) == (b"poison", 1)


@on_every_store
def test_br_016_dead_letter_keeps_the_metadata(rig: BrokerRig) -> None:
    dead_letter_rig(rig, attempts=1)
    (message_id,) = rig.queue.publish(TOPIC, [InternalMessage(b"a", {"colour": "red"}, "key")])
    original = rig.pull_one()
    rig.clock.advance(5)
    rig.queue.nack(original.ack_id)
    rig.clock.advance(5)

    dead = rig.pull_one("undertaker")

    assert (dead.id, dead.data, dead.ordering_key) == (message_id, b"a", "key")
    assert dead.publish_time == original.publish_time
    assert dead.attributes.items() >= {"colour": "red"}.items()


def test_br_016_an_acked_message_is_no_dead_letter(rig: BrokerRig) -> None:
    dead_letter_rig(rig, attempts=2)
    rig.publish("a")
    rig.queue.nack(rig.pull_one().ack_id)
    rig.queue.ack(rig.pull_one().ack_id)

    rig.clock.advance(3600)

    assert rig.queue.counters(SUBSCRIPTION).total == 0
    assert rig.pull(name="undertaker") == []


# BR-017


def unfit_messages() -> list[tuple[str, InternalMessage]]:
    return [
        ("too large", InternalMessage(b"x" * (10 * MIB + 1))),
        ("too large with its attributes", InternalMessage(b"x" * (10 * MIB - 100), {"key": "v" * 1024})),
        ("long key", InternalMessage(b"", {"k" * 257: "v"})),
        ("long value", InternalMessage(b"", {"key": "v" * 1025})),
        ("empty key", InternalMessage(b"", {"": "v"})),
        ("goog", InternalMessage(b"", {"google": "v"})),
        ("googclient_", InternalMessage(b"", {"googclient_deliveryattempt": "v"})),
        ("number as value", InternalMessage(b"", {"key": 1})),  # type: ignore[dict-item]
        ("none as value", InternalMessage(b"", {"key": None})),  # type: ignore[dict-item]
        ("bytes as value", InternalMessage(b"", {"key": b"v"})),  # type: ignore[dict-item]
    ]


@pytest.mark.parametrize("unfit", [pytest.param(message, id=name) for name, message in unfit_messages()])
def test_br_017_a_message_that_is_not_fit_is_refused_with_code_3(rig: BrokerRig, unfit: InternalMessage) -> None:
    rig.subscribe()

    with refused(3):
        rig.queue.publish(TOPIC, [unfit])

    assert rig.queue.counters(SUBSCRIPTION).total == 0


@on_every_store
def test_br_017_messages_at_the_limits_are_taken_and_come_back_whole(rig: BrokerRig) -> None:
    rig.subscribe()
    attributes = {"k" * 256: "v" * 1024, "é" * 128: "é" * 512, "Google": "g", "goo": "", "xgoog": "x"}
    messages = [InternalMessage(b"", attributes), InternalMessage(b"x" * (10 * MIB - 1024))]

    rig.queue.publish(TOPIC, messages)

    first, second = rig.pull()
    assert first.attributes == attributes
    assert second.data == messages[1].data


@pytest.mark.parametrize("unfit", [pytest.param(message, id=name) for name, message in unfit_messages()])
def test_br_017_one_unfit_message_publishes_nothing_to_nobody(rig: BrokerRig, unfit: InternalMessage) -> None:
    rig.subscribe("one")
    rig.subscribe("two")

    for place in range(3):
        messages = [InternalMessage(b"fit")] * 2
        messages.insert(place, unfit)
        with refused(3):
            rig.queue.publish(TOPIC, messages)

    assert rig.pull(name="one") == rig.pull(name="two") == []
    assert rig.queue.counters("one").total == rig.queue.counters("two").total == 0


# BR-018


def test_br_018_ack_id_is_unique_per_delivery_and_names_message_and_attempt(rig: BrokerRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two")
    (message_id,) = rig.publish("a")

    seen = set()
    for attempt in range(1, 6):
        for name in ("one", "two"):
            message = rig.pull_one(name)
            assert message.ack_id.startswith(f"{message_id}-{attempt}")
            seen.add(message.ack_id)
            rig.queue.nack(message.ack_id)
    assert len(seen) == 10


@on_every_store
@pytest.mark.parametrize("end", ["nack", "expiry"])
def test_br_018_only_the_current_ack_id_is_valid(rig: BrokerRig, end: str) -> None:
    rig.subscribe()
    rig.publish("a")
    previous = rig.pull_one().ack_id
    if end == "nack":
        rig.queue.nack(previous)
    else:
        rig.clock.advance(10)
    current = rig.pull_one().ack_id

    for operation in (rig.queue.ack, rig.queue.nack):
        with refused(3, f"Invalid ack ID: {previous}"):
            operation(previous)
    assert rig.queue.counters(SUBSCRIPTION).leased == 1
    rig.queue.ack(current)
    assert rig.queue.counters(SUBSCRIPTION).total == 0


def test_br_018_an_ack_id_is_refused_the_moment_it_expires(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=10)
    rig.publish("a", "b")
    first, second = rig.pull()

    rig.clock.advance(9.999)
    rig.queue.ack(first.ack_id)
    rig.clock.advance(0.001)
    with refused(3, f"Invalid ack ID: {second.ack_id}"):
        rig.queue.ack(second.ack_id)
    with refused(3, f"Invalid ack ID: {second.ack_id}"):
        rig.queue.nack(second.ack_id)
    assert rig.pull_one().delivery_attempt == 2


@pytest.mark.parametrize("ack_id", ["abc123", "", "-", "---", "a-b-c-d", "a-1-1-0", f"a-1-{'9' * 5000}-b", "a-1-٣-b"])
def test_br_018_an_ack_id_that_never_was_is_refused(rig: BrokerRig, ack_id: str) -> None:
    rig.subscribe()
    rig.publish("a")
    rig.pull_one()

    for operation in (rig.queue.ack, rig.queue.nack, lambda ack_id: rig.queue.modify_ack_deadline(ack_id, 10)):
        with refused(3, f"Invalid ack ID: {ack_id}"):
            operation(ack_id)


def test_br_018_an_ack_id_written_in_another_way_is_refused(rig: BrokerRig) -> None:
    rig.subscribe()
    rig.publish("a")
    ack_id = rig.pull_one().ack_id
    message, attempt, lease, tag = ack_id.split("-")
    aliases = [
        f"{message}-{attempt}-0{lease}-{tag}",
        f"{message}-{attempt}-+{lease}-{tag}",
        f"{message}-0{attempt}-{lease}-{tag}",
        f"{message.lower()}-{attempt}-{lease}-{tag}",
        f"{message}-{attempt}-{lease}-{tag}-",
        f" {ack_id}",
        f"{ack_id}\n",
    ]

    for alias in aliases:
        with refused(3, f"Invalid ack ID: {alias}"):
            rig.queue.ack(alias)
    rig.queue.ack(ack_id)


def test_br_018_the_ack_id_of_another_message_or_subscription_does_not_fit(rig: BrokerRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two")
    rig.publish("a", "b")
    mine, other = rig.pull(name="one")
    theirs = rig.pull(name="two")[0]
    message, attempt, lease, tag = mine.ack_id.split("-")

    for forged in (
        "-".join([other.id, attempt, lease, tag]),
        "-".join([message, "2", lease, tag]),
        "-".join([message, attempt, "99", tag]),
        "-".join([message, attempt, lease, "0"]),
    ):
        with refused(3, f"Invalid ack ID: {forged}"):
            rig.queue.ack(forged)
    rig.queue.ack(theirs.ack_id)
    assert rig.queue.counters("one").leased == 2


def test_br_018_acking_several_with_one_invalid_acks_none(rig: BrokerRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two")
    rig.publish("a", "b")
    ack_ids = [message.ack_id for name in ("one", "two") for message in rig.pull(name=name)]

    with refused(3, "Invalid ack ID: abc123"):
        rig.queue.ack_all([*ack_ids, "abc123"])
    assert rig.queue.counters("one").leased == rig.queue.counters("two").leased == 2
    rig.queue.ack_all([*ack_ids, ack_ids[0]])
    assert rig.queue.counters("one").total == rig.queue.counters("two").total == 0


# BR-019


@on_every_store
def test_br_019_messages_come_in_publish_order(rig: BrokerRig) -> None:
    rig.subscribe()
    for start in range(0, 60, 7):
        rig.publish(*[str(number) for number in range(start, min(start + 7, 60))])

    pulled = [text for _ in range(12) for text in rig.pull_texts(5)]

    assert pulled == [str(number) for number in range(60)]


def test_br_019_messages_without_a_key_stay_oldest_first_when_they_come_back(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    rig.publish("1", "2", "3", "4", "5")
    pulled = rig.pull(4)
    for index in (3, 1):
        rig.queue.nack(pulled[index].ack_id)
    rig.clock.advance(10)

    assert rig.pull_texts() == ["1", "2", "3", "4", "5"]


def test_br_019_each_key_has_an_ordered_queue_of_its_own(rig: BrokerRig) -> None:
    rig.subscribe(message_ordering=True)
    for number in range(5):
        for key in ("a", "b"):
            rig.publish(f"{key}{number}", key=key)

    by_key: dict[str | None, list[str]] = {}
    while pulled := rig.pull(1):
        by_key.setdefault(pulled[0].ordering_key, []).extend(texts(pulled))
        rig.queue.ack(pulled[0].ack_id)

    assert by_key == {key: [f"{key}{number}" for number in range(5)] for key in ("a", "b")}


# BR-020


@pytest.mark.parametrize("end", ["ack", "nack"])
def test_br_020_a_settled_lease_leaves_nothing_behind(rig: BrokerRig, end: str) -> None:
    rig.subscribe()
    rig.publish("a")
    message = rig.pull_one()

    getattr(rig.queue, end)(message.ack_id)

    counters = rig.queue.counters(SUBSCRIPTION)
    assert (counters.leased, counters.leased_bytes, counters.settling) == (0, 0, 0)
    with refused(3, f"Invalid ack ID: {message.ack_id}"):
        getattr(rig.queue, end)(message.ack_id)


def test_br_020_no_timer_fires_for_a_lease_that_was_nacked(rig: BrokerRig) -> None:
    rig.subscribe(ack_deadline_seconds=10)
    rig.publish("a")
    rig.queue.nack(rig.pull_one().ack_id)
    rig.clock.advance(6)
    current = rig.pull_one()

    rig.clock.advance(4)

    assert rig.pull() == []
    rig.queue.ack(current.ack_id)


# BR-021


@on_every_store
def test_br_021_unregister_topic_with_messages_in_flight(rig: BrokerRig) -> None:
    rig.subscribe("one")
    rig.subscribe("two", message_ordering=True, retry_policy=RetryPolicy())
    rig.publish("a", "b", "c", key="key")
    leased = [*rig.pull(2, "one"), *rig.pull(name="two")]
    assert len(leased) == 3

    rig.queue.unregister_topic(TOPIC)

    assert not rig.queue.topic_exists(TOPIC)
    for name in ("one", "two"):
        found = rig.queue.get_subscription(name)
        assert found is not None
        assert (found.detached, found.topic) == (True, TOPIC)
    for message in leased:
        with refused(3, f"Invalid ack ID: {message.ack_id}"):
            rig.queue.ack(message.ack_id)
    rig.clock.advance(3600)
    for name in ("one", "two"):
        assert rig.pull(name=name) == []
        counters = rig.queue.counters(name)
        assert (counters.total, counters.total_bytes, counters.leased_bytes) == (0, 0, 0)


# BR-022


@on_every_store
def test_br_022_a_full_subscription_gets_no_new_messages_and_others_do(
    rig: BrokerRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.subscribe(max_messages=3)
    rig.subscribe("roomy")

    with caplog.at_level(logging.WARNING, "penstock.broker"):
        ids = rig.publish("1", "2", "3", "4", "5")

    assert len(ids) == 5
    assert "capacity" in caplog.text
    assert rig.pull_texts() == ["1", "2", "3"]
    assert rig.pull_texts(name="roomy") == ["1", "2", "3", "4", "5"]
    assert rig.queue.dropped(SUBSCRIPTION) == 2
    assert rig.queue.dropped("roomy") == 0


@on_every_store
def test_br_022_a_subscription_accepts_again_below_its_threshold(rig: BrokerRig) -> None:
    rig.subscribe(max_messages=2)
    rig.publish("1", "2")
    first, _ = rig.pull()
    rig.publish("dropped while both are in flight")

    rig.queue.ack(first.ack_id)
    rig.publish("3")
    rig.publish("dropped")

    assert rig.pull_texts() == ["3"]
    assert rig.queue.dropped(SUBSCRIPTION) == 2


def test_br_022_the_threshold_in_bytes(rig: BrokerRig) -> None:
    size = message_size(rig, "x" * 1000)
    rig.subscribe(max_bytes=2 * size)
    rig.publish(*["x" * 1000] * 3)

    first, second = rig.pull()
    rig.queue.ack(first.ack_id)
    rig.publish("y" * 1001)
    assert rig.pull() == []
    rig.publish("y" * 1000)
    assert rig.pull_texts() == ["y" * 1000]
    assert rig.queue.dropped(SUBSCRIPTION) == 2
    rig.queue.ack(second.ack_id)


def test_br_022_the_default_threshold_is_10_000_messages(rig: BrokerRig) -> None:
    rig.subscribe()
    messages = [InternalMessage(b"x")] * 1000

    for _ in range(10):
        rig.queue.publish(TOPIC, messages)
    assert rig.queue.dropped(SUBSCRIPTION) == 0
    rig.publish("one more")

    assert rig.queue.counters(SUBSCRIPTION).total == 10_000
    assert rig.queue.dropped(SUBSCRIPTION) == 1


def test_br_022_the_default_threshold_is_100_mb() -> None:
    rig = BrokerRig(MemoryStore)
    rig.subscribe()
    overhead = message_size(rig, "x") - 1
    body = b"x" * (10 * MIB - overhead)

    rig.queue.publish(TOPIC, [InternalMessage(body)] * 10)
    assert rig.queue.counters(SUBSCRIPTION).total_bytes == 100 * MIB
    assert rig.queue.dropped(SUBSCRIPTION) == 0
    rig.publish("")

    assert rig.queue.dropped(SUBSCRIPTION) == 1


@on_every_store
def test_br_022_a_subscription_that_rejects_fails_the_publish_for_everybody(rig: BrokerRig) -> None:
    rig.subscribe("roomy")
    rig.subscribe(max_messages=1, overflow=Overflow.REJECT)
    rig.publish("1")

    with refused(8):
        rig.publish("2")
    with refused(8):
        rig.publish("2", "3")

    assert rig.pull_texts(name="roomy") == ["1"]
    rig.queue.ack(rig.pull_one().ack_id)
    rig.publish("4")
    assert rig.pull_texts() == rig.pull_texts(name="roomy") == ["4"]

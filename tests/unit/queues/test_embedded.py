"""The embedded queue's table: whose turn it is, at times that the tests choose; and its cost."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.queues.embedded.table import Ack, EmbeddedTable, Extend, Handle, Nack
from penstock.queues.port import Publication, Received

LEASE_MS = 30_000
MINUTE_MS = 60_000


class Queue:
    """A table with a clock."""

    def __init__(self, table: EmbeddedTable) -> None:
        self.table = table
        self.now_ms = 1_000_000

    def publish(self, *texts: str, dedup_id: str | None = None) -> None:
        """Messages `<group><number>`; those that begin with a hyphen have no group."""
        self.table.publish(
            [Publication(text.encode(), None if text[0] == "-" else text[0], dedup_id) for text in texts], self.now_ms
        )

    def receive(self, most: int = 10) -> list[Received]:
        return self.table.receive(most, LEASE_MS, self.now_ms).messages

    def take(self, most: int = 10) -> str:
        return " ".join(message.body.decode() for message in self.receive(most))

    def ack(self, *messages: Received) -> None:
        self.table.settle([Ack(Handle.parse(message.handle)) for message in messages], self.now_ms)

    def nack(self, message: Received, delay_ms: int = 0) -> None:
        self.table.settle([Nack(Handle.parse(message.handle), delay_ms)], self.now_ms)

    def extend(self, message: Received) -> None:
        self.table.settle([Extend(Handle.parse(message.handle), LEASE_MS)], self.now_ms)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


@pytest.fixture
def queue(path: str) -> Iterator[Queue]:
    table = EmbeddedTable(path, "q")
    yield Queue(table)
    table.close()


def test_the_heads_of_groups_go_first_and_those_behind_them_share_the_room(queue: Queue) -> None:
    queue.publish("a1", "a2", "a3", "b1", "b2", "b3", "c1")
    assert queue.take(6) == "a1 b1 c1 a2 b2 a3"


def test_a_group_that_was_served_stands_behind_the_others(queue: Queue) -> None:
    queue.publish("a1", "a2", "b1", "b2")
    (first,) = queue.receive(1)
    queue.now_ms += 1
    queue.ack(first)
    assert queue.take(1) == "b1"
    assert queue.take(1) == "a2"


def test_nothing_of_a_group_goes_while_an_earlier_message_is_leased(queue: Queue) -> None:
    queue.publish("a1", "a2", "-1")
    first, _ = queue.receive(2)
    queue.publish("a3")
    assert queue.take() == ""
    queue.ack(first)
    assert queue.take() == "a2 a3"


def test_a_message_published_into_a_group_whose_messages_are_all_leased_waits(queue: Queue) -> None:
    queue.publish("a1")
    (first,) = queue.receive()
    queue.publish("a2")
    assert queue.take() == ""
    queue.ack(first)
    assert queue.take() == "a2"


def test_a_delayed_head_blocks_its_group_and_no_other(queue: Queue) -> None:
    queue.publish("a1", "a2", "b1")
    head = queue.receive(1)[0]
    queue.nack(head, 5_000)
    assert queue.take() == "b1"
    queue.now_ms += 4_999
    assert queue.take() == ""
    queue.now_ms += 1
    assert queue.take() == "a1 a2"


def test_one_behind_the_head_that_waits_out_a_delay_is_not_passed(queue: Queue) -> None:
    queue.publish("a1", "a2", "a3")
    first, second, third = queue.receive()
    queue.nack(third)
    queue.nack(second, 5_000)
    queue.nack(first)
    (first,) = queue.receive()
    assert first.body == b"a1"
    queue.ack(first)
    assert queue.take() == ""
    queue.now_ms += 5_000
    assert queue.take() == "a2 a3"


def test_a_lease_that_is_extended_counts_from_then(queue: Queue) -> None:
    queue.publish("a1")
    (message,) = queue.receive()
    queue.now_ms += LEASE_MS - 1
    queue.extend(message)
    queue.now_ms += LEASE_MS - 1
    assert queue.take() == ""
    queue.now_ms += 1
    assert queue.take() == "a1"


def test_handles_of_an_earlier_hand_out_neither_extend_nor_give_back(queue: Queue) -> None:
    queue.publish("a1")
    (old,) = queue.receive()
    queue.now_ms += LEASE_MS
    (new,) = queue.receive()
    assert (old.broker_id, old.handle != new.handle) == (new.broker_id, True)
    queue.nack(old)
    queue.extend(old)
    queue.now_ms += LEASE_MS - 1
    assert queue.take() == ""
    queue.now_ms += 1
    assert queue.take() == "a1"


def test_a_message_given_back_cannot_be_extended_any_more(queue: Queue) -> None:
    queue.publish("a1")
    (message,) = queue.receive()
    queue.nack(message)
    queue.extend(message)
    assert queue.take() == "a1"


def test_a_late_ack_removes_the_message_when_its_turn_comes_again(queue: Queue) -> None:
    queue.publish("a1", "a2")
    (old,) = queue.receive(1)
    queue.now_ms += LEASE_MS
    queue.receive(1)
    queue.ack(old)
    assert queue.take() == ""
    queue.now_ms += LEASE_MS
    assert queue.take() == "a2"


def test_a_late_ack_behind_the_head_is_remembered_too(queue: Queue) -> None:
    queue.publish("a1", "a2", "a3")
    old = queue.receive(2)
    queue.now_ms += LEASE_MS
    queue.receive(2)
    queue.ack(old[1])
    queue.now_ms += LEASE_MS
    (first,) = queue.receive()
    queue.ack(first)
    assert queue.take() == "a3"


def test_one_id_within_five_minutes_is_one_message(queue: Queue) -> None:
    queue.publish("a1", dedup_id="x")
    queue.now_ms += 5 * MINUTE_MS - 1
    queue.publish("a2", dedup_id="x")
    queue.now_ms += 1
    queue.publish("a3", dedup_id="x")
    assert queue.take() == "a1 a3"


def test_deduplication_outlasts_the_message(queue: Queue) -> None:
    queue.publish("a1", dedup_id="x")
    queue.ack(*queue.receive())
    queue.publish("a1", dedup_id="x")
    assert queue.take() == ""


def test_queues_of_one_file_do_not_meet(queue: Queue, path: str) -> None:
    other = EmbeddedTable(path, "other")
    queue.publish("a1", dedup_id="x")
    other.publish([Publication(b"b1", "a", "x")], queue.now_ms)
    assert queue.take() == "a1"
    assert [message.body for message in other.receive(10, LEASE_MS, queue.now_ms).messages] == [b"b1"]
    other.close()


def test_a_receive_that_finds_nothing_says_when_to_look_again(queue: Queue) -> None:
    assert queue.table.receive(10, LEASE_MS, 0).next_due_ms is None
    queue.publish("a1")
    queue.receive()
    assert queue.table.receive(10, LEASE_MS, queue.now_ms).next_due_ms == queue.now_ms + LEASE_MS


def test_the_version_changes_with_another_connection_s_commit_only(queue: Queue, path: str) -> None:
    other = EmbeddedTable(path, "q")
    before = queue.table.version()
    queue.publish("a1")
    assert queue.table.version() == before
    other.publish([Publication(b"b1", "b", None)], 0)
    assert queue.table.version() != before
    other.close()


def test_a_transaction_that_fails_leaves_nothing(queue: Queue) -> None:
    bad = Publication(b"not text", {"a": 1}, None)  # type: ignore[arg-type]
    with pytest.raises(sqlite3.Error):
        queue.table.publish([Publication(b"a1", "a", None), bad], queue.now_ms)
    assert queue.take() == ""
    queue.publish("a2")
    assert queue.take() == "a2"


def test_a_long_blocked_group_and_many_leased_ones_do_not_slow_another(queue: Queue) -> None:
    def steps_of_a_round() -> int:
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        queue.table._connection.set_progress_handler(count, 10)
        queue.publish("b1")
        queue.ack(*queue.receive())
        queue.table._connection.set_progress_handler(None, 10)
        return steps

    alone = steps_of_a_round()
    queue.table.publish([Publication(b"x", "blocked", None)] * 20_000, queue.now_ms)
    queue.table.publish([Publication(b"x", f"leased {number}", None) for number in range(2_000)], queue.now_ms)
    while queue.receive(1_000):
        pass
    assert steps_of_a_round() <= 2 * alone + 10

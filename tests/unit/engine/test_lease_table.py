"""The lease table: who holds what until when, in memory that follows the live leases."""

import random

from penstock.domain.message import Message
from penstock.engine.queue.entry import Entry
from penstock.engine.queue.lease import QueueLeases

TEN_MINUTES_MS = 600_000
# Twice the live leases and a constant; the constant is the table's own slack.
BOUND = 1_100


def entry(seq: int = 1) -> Entry:
    return Entry(seq, Message(f"m{seq}", b"", 0, 1))


def test_a_lease_runs_out_at_its_deadline_and_not_before() -> None:
    table, held = QueueLeases(), entry()
    table.grant([held], 100)
    assert table.next_deadline_ms() == 100
    assert table.pop_expired(99) is None
    assert table.pop_expired(100) is held
    assert table.pop_expired(100) is None
    assert len(table) == 0
    assert table.next_deadline_ms() is None


def test_leases_run_out_in_the_order_of_their_deadlines() -> None:
    table = QueueLeases()
    for seq, deadline_ms in ((1, 30), (2, 10), (3, 20)):
        table.grant([entry(seq)], deadline_ms)
    ended = [found.seq for _ in range(3) if (found := table.pop_expired(50)) is not None]
    assert ended == [2, 3, 1]


def test_leases_granted_together_run_out_one_by_one() -> None:
    table, held = QueueLeases(), [entry(seq) for seq in range(5)]
    table.grant(held, 100)
    assert len(table._heap) == 1
    table.end(held[1])
    table.move_deadline(held[2], 200)
    table.move_deadline(held[3], 50)
    assert table.pop_expired(99) is held[3]
    assert [table.pop_expired(100) for _ in range(3)] == [held[0], held[4], None]
    assert table.next_deadline_ms() == 200
    assert table.pop_expired(200) is held[2]
    assert len(table) == 0


def test_a_lease_that_ended_does_not_run_out() -> None:
    table, held = QueueLeases(), entry()
    table.grant([held], 100)
    table.end(held)
    assert len(table) == 0
    assert table.pop_expired(1000) is None


def test_an_extended_lease_lives_on() -> None:
    table, held = QueueLeases(), entry()
    table.grant([held], 100)
    table.move_deadline(held, 200)
    assert table.pop_expired(150) is None
    assert table.next_deadline_ms() == 200
    assert table.pop_expired(200) is held


def test_a_shortened_lease_ends_sooner() -> None:
    table, held = QueueLeases(), entry()
    table.grant([held], 100)
    table.move_deadline(held, 10)
    assert table.next_deadline_ms() == 10
    assert table.pop_expired(10) is held
    assert table.pop_expired(100) is None


def test_a_restored_lease_keeps_its_id_and_deadline() -> None:
    table, held = QueueLeases(), entry()
    table.grant([held], 100)
    lease_id = held.lease_id
    table.end(held)
    table.restore(held)
    assert held.lease_id == lease_id
    assert table.pop_expired(99) is None
    assert table.pop_expired(100) is held
    assert table.pop_expired(100) is None


def test_ids_are_never_granted_again() -> None:
    table = QueueLeases()
    first, second = entry(1), entry(2)
    table.grant([first], 100)
    table.clear()
    assert len(table) == 0
    table.grant([second], 100)
    assert second.lease_id != first.lease_id


def test_a_million_settled_leases_leave_nothing_behind() -> None:
    table, held = QueueLeases(), entry()
    largest = 0
    for now_ms in range(1_000_000):
        table.grant([held], now_ms + TEN_MINUTES_MS)
        table.end(held)
        if not now_ms & 255:
            largest = max(largest, len(table._heap))
    assert len(table) == 0
    assert max(largest, len(table._heap)) <= BOUND


def test_memory_follows_the_leases_that_live_beside_settled_ones() -> None:
    table, held = QueueLeases(), entry()
    for seq in range(5_000):
        table.grant([entry(seq)], TEN_MINUTES_MS)
    for now_ms in range(50_000):
        table.grant([held], now_ms + TEN_MINUTES_MS)
        table.end(held)
    assert len(table) == 5_000
    assert len(table._heap) <= 2 * 5_000 + BOUND


def test_extending_for_ever_costs_no_memory() -> None:
    table = QueueLeases()
    held = [entry(seq) for seq in range(10)]
    for one in held:
        table.grant([one], 30_000)
    for now_ms in range(0, 3_000_000, 100):
        one = held[now_ms // 100 % 10]
        table.move_deadline(one, now_ms + 30_000)
        assert table.pop_expired(now_ms) is None
    assert len(table) == 10
    assert len(table._heap) == 10


def test_moving_a_deadline_to_and_fro_costs_no_memory() -> None:
    table, held = QueueLeases(), entry()
    table.grant([held], TEN_MINUTES_MS)
    for _ in range(50_000):
        table.move_deadline(held, TEN_MINUTES_MS)
        table.move_deadline(held, 30_000)
    assert len(table._heap) <= BOUND
    assert table.pop_expired(29_999) is None
    assert table.pop_expired(30_000) is held


def test_refused_settlements_cost_no_memory() -> None:
    table, held = QueueLeases(), entry()
    table.grant([held], TEN_MINUTES_MS)
    for _ in range(50_000):
        table.end(held)
        table.restore(held)
    assert len(table._heap) <= BOUND
    assert table.pop_expired(TEN_MINUTES_MS) is held


def test_any_sequence_agrees_with_a_plain_table() -> None:
    chance = random.Random(7)
    table = QueueLeases()
    plain: dict[int, tuple[int, Entry]] = {}
    now_ms = 0
    for step in range(20_000):
        move = chance.randrange(5)
        if move <= 1:
            held = entry(step)
            table.grant([held], now_ms + chance.randrange(1, 500))
            plain[held.lease_id] = (held.deadline_ms, held)
        elif move == 2 and plain:
            table.end(plain.pop(chance.choice(list(plain)))[1])
        elif move == 3 and plain:
            lease_id = chance.choice(list(plain))
            held = plain[lease_id][1]
            table.move_deadline(held, now_ms + chance.randrange(1, 500))
            plain[lease_id] = (held.deadline_ms, held)
        else:
            now_ms += chance.randrange(20)
            due = sorted(lease_id for lease_id, (deadline_ms, _) in plain.items() if deadline_ms <= now_ms)
            ended = []
            while (found := table.pop_expired(now_ms)) is not None:
                ended.append(found.lease_id)
            assert sorted(ended) == due
            for lease_id in due:
                del plain[lease_id]
        assert set(table.live) == set(plain)

"""The leased queue: order, turns, leases, limits, and what leaves other than by acknowledgement."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.domain.message import Message
from penstock.domain.retry import RetryPolicy
from penstock.engine.errors import LeaseNotFound
from penstock.engine.queue.entry import DELAYED, GONE, LEASED, WAITING, Entry
from penstock.engine.queue.leased_queue import LeasedQueue
from penstock.engine.queue.policy import DeadLetterAt, Grouping, QueuePolicy

NONE, BATCH, ONE = Grouping.NONE, Grouping.BATCH, Grouping.ONE
LEASE_MS = 10_000


class Rig:
    """A queue with a clock; every operation is followed by a check of the counters."""

    def __init__(
        self,
        grouping: Grouping = NONE,
        *,
        retention_ms: int = 10**9,
        retry: RetryPolicy | None = None,
        max_deliveries: int | None = None,
        dead_letter_at: DeadLetterAt = DeadLetterAt.RELEASE,
        max_in_flight: int | None = None,
        max_in_flight_bytes: int | None = None,
        late_ack: bool = False,
    ) -> None:
        policy = QueuePolicy(
            grouping=grouping,
            lease_ms=LEASE_MS,
            retention_ms=retention_ms,
            retry=retry,
            max_deliveries=max_deliveries,
            dead_letter_at=dead_letter_at,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
            late_ack=late_ack,
        )
        self.queue = LeasedQueue(policy, track_releases=True)
        self.now_ms = 1_000
        self.seq = 0

    def send(self, *groups: str, size: int = 1, delay_ms: int = 0) -> None:
        """One message for each group named, "" for none; they are numbered from 1."""
        for group in groups:
            self.seq += 1
            due_ms = self.now_ms + delay_ms if delay_ms else 0
            message = Message(f"m{self.seq}", b"", self.now_ms, size, group, deliver_at_ms=due_ms)
            self.queue.add([Entry(self.seq, message, available_ms=due_ms)], self.now_ms)
        self.check()

    def receive(self, limit: int = 10, *, max_bytes: int | None = None, lease_ms: int | None = None) -> list[int]:
        """The sequence numbers of what is handed out."""
        got = self.queue.receive(self.now_ms, limit, max_bytes=max_bytes, lease_ms=lease_ms)
        self.check()
        return [entry.seq for entry in got]

    def lease_of(self, seq: int) -> int:
        return next(entry.lease_id for entry in self.queue.leases() if entry.seq == seq)

    def ack(self, *seqs: int) -> None:
        for seq in seqs:
            self.queue.finish(self.queue.settle(self.lease_of(seq), self.now_ms))
            self.check()

    def settle_late(self, seq: int, lease_id: int) -> Entry:
        """Settle by a lease that may have expired."""
        try:
            return self.queue.settle(lease_id, self.now_ms)
        except LeaseNotFound:
            return self.queue.settle_late(seq)

    def nack(self, *seqs: int, delay_ms: int | None = None) -> None:
        for seq in seqs:
            self.queue.release(self.lease_of(seq), self.now_ms, delay_ms)
            self.check()

    def later(self, ms: int) -> None:
        self.now_ms += ms
        self.queue.advance(self.now_ms)
        self.check()

    def drain(self) -> list[int]:
        """Everything that can be had now, acknowledged one receive at a time."""
        order: list[int] = []
        while got := self.receive(1):
            order += got
            self.ack(*got)
        return order

    def check(self) -> None:
        """The counters say what a look at every message says."""
        queue, counters = self.queue, self.queue.counters()
        found = queue.peek(0, 10**6)
        states = Counter(entry.state for entry in found)
        settling = list(queue._settling.values())
        assert counters.visible == states[WAITING]
        assert counters.delayed == states[DELAYED]
        assert counters.leased == states[LEASED] == len(list(queue.leases()))
        assert counters.settling == len(settling)
        assert counters.total == queue.held == len(found) + len(settling)
        assert counters.total_bytes == sum(entry.message.size_bytes for entry in (*found, *settling))
        leased_bytes = sum(entry.message.size_bytes for entry in found if entry.state is LEASED)
        assert counters.leased_bytes == queue.leased_bytes == leased_bytes
        assert not states[GONE]
        seqs = [entry.seq for entry in (*found, *settling)]
        assert len(seqs) == len(set(seqs))


every_grouping = pytest.mark.parametrize("grouping", list(Grouping))
both_groupings = pytest.mark.parametrize("grouping", [BATCH, ONE])


# Order


@every_grouping
def test_messages_come_in_the_order_they_were_sent(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send(*[""] * 20)
    assert rig.receive(7) == [1, 2, 3, 4, 5, 6, 7]
    assert rig.receive(100) == list(range(8, 21))
    assert rig.receive() == []


def test_groups_order_nothing_without_grouping() -> None:
    rig = Rig(NONE)
    rig.send("a", "a", "b", "a")
    assert rig.receive() == [1, 2, 3, 4]


@every_grouping
def test_returned_messages_come_in_order_before_newer_ones(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("", "", "", "", "", "")
    assert rig.receive(4) == [1, 2, 3, 4]
    rig.nack(3, 1, 4)
    rig.ack(2)
    assert rig.receive() == [1, 3, 4, 5, 6]


@both_groupings
def test_a_group_comes_in_order_whatever_is_returned(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send(*"aaaaa")
    chance = random.Random(3)
    settled: list[int] = []
    while got := rig.receive(3):
        assert got == sorted(got)
        assert got[0] == next(seq for seq in range(1, 6) if seq not in settled)
        for seq in got:
            if chance.random() < 0.5:
                rig.nack(seq)
            else:
                rig.ack(seq)
                settled.append(seq)
    assert sorted(settled) == [1, 2, 3, 4, 5]


# Turns


@both_groupings
def test_a_deep_group_does_not_keep_others_waiting(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send(*["deep"] * 1000)
    rig.send("b", "c", "d")
    first_turns: list[int] = []
    for _ in range(4):
        got = rig.receive(1)
        first_turns += got
        rig.ack(*got)
    assert sorted(first_turns) == [1, 1001, 1002, 1003]


@both_groupings
def test_groups_take_turns(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send(*"aaabbbccc")
    assert rig.drain() == [1, 4, 7, 2, 5, 8, 3, 6, 9]


def test_a_receive_of_many_takes_one_of_each_group() -> None:
    rig = Rig(ONE)
    rig.send(*"aaabbbccc")
    assert rig.receive(10) == [1, 4, 7]


@both_groupings
def test_messages_without_a_group_are_not_blocked_by_groups(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    rig.send("", "")
    assert rig.receive(10) == [3, 4]
    assert rig.receive(10) == []


@both_groupings
@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_neither_groups_nor_messages_without_one_starve_the_other(grouping: Grouping, limit: int) -> None:
    rig = Rig(grouping)
    rig.send(*[f"g{number}" for number in range(200)])
    rig.send(*[""] * 200)
    grouped = entry = 0
    for _ in range(20):
        got = rig.receive(limit)
        grouped += sum(seq <= 200 for seq in got)
        entry += sum(seq > 200 for seq in got)
        rig.ack(*got)
    assert min(grouped, entry) >= 0.4 * (grouped + entry)


@both_groupings
def test_a_group_whose_message_did_not_fit_keeps_its_turn(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("s1")
    rig.send("big", size=90)
    rig.send("s2", "s3")
    for _ in range(20):
        got = rig.receive(10, max_bytes=90)
        if 2 in got:
            return
        for seq in got:  # small messages keep coming in the other groups before the next receive
            rig.send(next(entry for entry in rig.queue.leases() if entry.seq == seq).message.group)
            rig.ack(seq)
    pytest.fail("the large message never got its turn")


# Groups


def test_a_batch_may_hold_several_of_one_group() -> None:
    rig = Rig(BATCH)
    rig.send(*"aaabb")
    assert rig.receive(10) == [1, 2, 3, 4, 5]


def test_a_group_waits_until_its_whole_batch_is_settled() -> None:
    rig = Rig(BATCH)
    rig.send(*"aaaa")
    assert rig.receive(3) == [1, 2, 3]
    assert rig.receive(3) == []
    rig.ack(2, 3)
    assert rig.receive(3) == []
    rig.ack(1)
    assert rig.receive(3) == [4]


def test_a_batch_returned_in_part_comes_back_in_order() -> None:
    rig = Rig(BATCH)
    rig.send(*"aaaa")
    assert rig.receive(3) == [1, 2, 3]
    rig.nack(3)
    assert rig.receive() == []
    rig.nack(1)
    assert rig.receive() == [1]
    rig.nack(2)
    assert rig.receive() == []
    rig.ack(1)
    assert rig.receive() == [2, 3, 4]


def test_what_came_back_before_those_in_flight_can_be_received() -> None:
    rig = Rig(BATCH)
    rig.send(*"aaaaa")
    assert rig.receive(4) == [1, 2, 3, 4]
    rig.ack(1)
    rig.nack(3)
    assert rig.receive() == []
    rig.nack(2)
    assert rig.receive() == [2, 3]
    rig.ack(4, 3, 2)
    assert rig.receive() == [5]


def test_one_message_of_a_group_at_a_time() -> None:
    rig = Rig(ONE)
    rig.send(*"aab")
    assert rig.receive() == [1, 3]
    assert rig.receive() == []
    rig.ack(1)
    assert rig.receive() == [2]


@both_groupings
def test_a_group_is_held_until_the_store_has_the_settlement(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    settling = rig.queue.settle(rig.lease_of(1), rig.now_ms)
    rig.check()
    assert rig.receive() == []
    rig.queue.finish(settling)
    assert rig.receive() == [2]


@both_groupings
def test_empty_lanes_are_forgotten(grouping: Grouping) -> None:
    rig = Rig(grouping)
    for number in range(500):
        rig.send(f"g{number}")
        rig.ack(*rig.receive())
    assert rig.receive() == []
    assert len(rig.queue._line.lanes) == 0
    assert len(rig.queue._line.ring) == 0


# Delays


@every_grouping
def test_a_message_sent_with_a_delay_waits_for_it(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", delay_ms=5_000)
    assert rig.queue.next_due_ms() == rig.now_ms + 5_000
    rig.later(4_999)
    assert rig.receive() == []
    assert rig.queue.counters().delayed == 1
    rig.later(1)
    assert rig.receive() == [1]


@every_grouping
def test_a_delayed_message_does_not_hold_up_those_without_a_group(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("", delay_ms=5_000)
    rig.send("", "")
    assert rig.receive(1) == [2]
    rig.later(5_000)
    assert rig.receive() == [1, 3]


@both_groupings
def test_later_messages_of_a_group_never_pass_a_delayed_one(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", delay_ms=5_000)
    rig.send("a", "b")
    assert rig.receive() == [3]
    rig.later(5_000)
    assert rig.receive(1) == [1]
    rig.ack(1)
    assert rig.receive() == [2]


@both_groupings
def test_a_delay_in_the_middle_of_a_group_stops_it_there(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a")
    rig.send("a", delay_ms=5_000)
    rig.send("a")
    assert rig.receive() == [1]
    rig.ack(1)
    assert rig.receive() == []
    rig.later(5_000)
    assert rig.drain() == [2, 3]


@every_grouping
def test_a_message_returned_with_a_delay_waits_for_it(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", "b")
    assert rig.receive(1) == [1]
    rig.nack(1, delay_ms=700)
    assert rig.receive() == [2]
    rig.later(699)
    assert rig.receive() == []
    rig.later(1)
    assert rig.receive() == [1]


@both_groupings
def test_later_messages_of_a_group_never_pass_a_returned_one(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send(*"aaa")
    for attempt in range(3):
        assert rig.receive(1) == [1]
        rig.nack(1, delay_ms=1_000 * attempt)
        if attempt:
            assert rig.receive() == []
        rig.later(1_000 * attempt)
    assert rig.drain() == [1, 2, 3]


def test_the_retry_policy_sets_the_delay_of_a_return() -> None:
    rig = Rig(retry=RetryPolicy(minimum_backoff_s=1, maximum_backoff_s=3))
    rig.send("")
    for expected_ms in (1_000, 2_000, 3_000, 3_000):
        assert rig.receive() == [1]
        rig.nack(1)
        rig.later(expected_ms - 1)
        assert rig.receive() == []
        rig.later(1)
    assert rig.receive() == [1]
    rig.nack(1, delay_ms=0)
    assert rig.receive() == [1]


# Leases


@every_grouping
def test_a_lease_runs_out_and_the_message_comes_back(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    assert rig.queue.next_due_ms() == rig.now_ms + LEASE_MS
    rig.later(LEASE_MS - 1)
    assert rig.queue.leased == 1
    rig.later(1)
    assert rig.queue.leased == 0
    (again,) = rig.queue.receive(rig.now_ms, 1)
    assert (again.seq, again.receive_count, again.first_received_ms) == (1, 2, 1_000)


def test_a_receive_ends_leases_that_ran_out() -> None:
    rig = Rig()
    rig.send("")
    assert rig.receive() == [1]
    rig.now_ms += LEASE_MS
    assert rig.receive() == [1]


def test_a_receive_may_set_its_own_lease() -> None:
    rig = Rig()
    rig.send("", "")
    assert rig.receive(1, lease_ms=100) == [1]
    assert rig.receive(1) == [2]
    rig.later(100)
    assert rig.receive() == [1]


def test_a_lease_is_extended_and_shortened() -> None:
    rig = Rig()
    rig.send("", "")
    assert rig.receive() == [1, 2]
    rig.queue.set_deadline(rig.lease_of(1), rig.now_ms + 5 * LEASE_MS, rig.now_ms)
    rig.queue.set_deadline(rig.lease_of(2), rig.now_ms + 10, rig.now_ms)
    rig.later(10)
    assert rig.receive() == [2]
    rig.later(LEASE_MS)
    assert rig.receive() == [2]
    rig.later(4 * LEASE_MS - 11)
    assert 1 not in rig.receive()
    rig.later(1)
    assert 1 in rig.receive()


@every_grouping
def test_a_lease_works_once(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a")
    assert rig.receive() == [1]
    lease_id = rig.lease_of(1)
    rig.ack(1)
    operations: tuple[Callable[[], Entry], ...] = (
        lambda: rig.queue.settle(lease_id, rig.now_ms),
        lambda: rig.queue.release(lease_id, rig.now_ms),
        lambda: rig.queue.set_deadline(lease_id, rig.now_ms + 1, rig.now_ms),
        lambda: rig.queue.lease(lease_id, rig.now_ms),
    )
    for operation in operations:
        with pytest.raises(LeaseNotFound, match=str(lease_id)):
            operation()
    rig.check()


@pytest.mark.parametrize("noticed", [True, False])
def test_an_acknowledgement_after_the_lease_ran_out_is_refused(noticed: bool) -> None:
    rig = Rig()
    rig.send("")
    assert rig.receive() == [1]
    lease_id = rig.lease_of(1)
    rig.now_ms += LEASE_MS
    if noticed:
        rig.later(0)
    with pytest.raises(LeaseNotFound):
        rig.queue.settle(lease_id, rig.now_ms)
    with pytest.raises(LeaseNotFound):
        rig.queue.release(lease_id, rig.now_ms)
    assert rig.receive() == [1]


@every_grouping
@pytest.mark.parametrize("noticed", [True, False])
def test_a_late_acknowledgement_works(grouping: Grouping, noticed: bool) -> None:
    rig = Rig(grouping, late_ack=True)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    lease_id = rig.lease_of(1)
    rig.now_ms += LEASE_MS
    if noticed:
        rig.later(0)
    settling = rig.settle_late(1, lease_id)
    rig.check()
    rig.queue.finish(settling)
    rig.check()
    assert rig.drain() == [2]


@every_grouping
def test_any_lease_acknowledges_while_the_message_exists(grouping: Grouping) -> None:
    rig = Rig(grouping, late_ack=True)
    rig.send("a")
    assert rig.receive() == [1]
    first = rig.lease_of(1)
    rig.later(LEASE_MS)
    assert rig.receive() == [1]
    rig.queue.finish(rig.settle_late(1, first))
    rig.check()
    assert rig.queue.held == 0
    with pytest.raises(LeaseNotFound):
        rig.settle_late(1, first)


@every_grouping
def test_an_earlier_lease_hides_its_message_again(grouping: Grouping) -> None:
    rig = Rig(grouping, late_ack=True)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    rig.nack(1, delay_ms=0)
    waiting = rig.queue.returned(1)
    assert waiting is not None
    rig.queue.hide(waiting, rig.now_ms + 5_000, rig.now_ms)
    rig.check()
    assert rig.receive() == ([2] if grouping is NONE else [])
    rig.later(5_000)
    assert rig.receive(1) == [1]
    (again,) = [entry for entry in rig.queue.leases() if entry.seq == 1]
    assert again.receive_count == 2


@both_groupings
def test_a_late_acknowledgement_holds_its_group_until_the_store_has_it(grouping: Grouping) -> None:
    rig = Rig(grouping, late_ack=True)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    lease_id = rig.lease_of(1)
    rig.later(LEASE_MS)
    settling = rig.settle_late(1, lease_id)
    assert rig.receive() == []
    rig.queue.unsettle(settling, rig.now_ms)
    rig.check()
    assert rig.receive(1) == [1]
    rig.ack(1)
    assert rig.receive() == [2]


@every_grouping
def test_a_late_acknowledgement_may_be_tried_again_after_the_store_refused_it(grouping: Grouping) -> None:
    rig = Rig(grouping, late_ack=True)
    rig.send("a")
    assert rig.receive() == [1]
    lease_id = rig.lease_of(1)
    rig.later(LEASE_MS)
    for _ in range(3):
        rig.queue.unsettle(rig.settle_late(1, lease_id), rig.now_ms)
        rig.check()
    rig.queue.finish(rig.settle_late(1, lease_id))
    rig.check()
    assert rig.receive() == []


@every_grouping
def test_a_refused_late_acknowledgement_leaves_the_delay_as_it_was(grouping: Grouping) -> None:
    rig = Rig(grouping, late_ack=True)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    lease_id = rig.lease_of(1)
    rig.nack(1, delay_ms=5_000)
    rig.queue.unsettle(rig.settle_late(1, lease_id), rig.now_ms)
    rig.check()
    assert 1 not in rig.receive()
    rig.later(5_000)
    assert 1 in rig.receive()


# Limits


def test_no_more_than_max_in_flight_are_handed_out() -> None:
    rig = Rig(max_in_flight=3)
    rig.send(*[""] * 10)
    assert rig.receive(2) == [1, 2]
    assert rig.receive(10) == [3]
    assert rig.receive(10) == []
    rig.ack(2)
    assert rig.receive(10) == [4]
    rig.later(LEASE_MS)
    assert rig.receive(10) == [1, 3, 4]


def test_no_more_bytes_than_max_in_flight_bytes_are_handed_out() -> None:
    rig = Rig(max_in_flight_bytes=100)
    rig.send("", "", "", size=40)
    assert rig.receive() == [1, 2]
    assert rig.receive() == []
    rig.ack(1)
    assert rig.receive() == [3]


def test_a_message_larger_than_max_in_flight_bytes_goes_alone() -> None:
    rig = Rig(max_in_flight_bytes=100)
    rig.send("", size=10)
    rig.send("", size=500)
    rig.send("", size=10)
    assert rig.receive() == [1]
    rig.ack(1)
    assert rig.receive() == [2]
    assert rig.receive() == []
    rig.ack(2)
    assert rig.receive() == [3]


@every_grouping
def test_a_receive_is_bounded_by_bytes(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("", "", "", "", size=40)
    assert rig.receive(10, max_bytes=100) == [1, 2]
    assert rig.receive(10, max_bytes=80) == [3, 4]


@every_grouping
def test_a_message_larger_than_the_receive_goes_alone(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("", size=40)
    rig.send("", size=400)
    rig.send("", size=40)
    assert rig.receive(10, max_bytes=100) == [1]
    assert rig.receive(10, max_bytes=100) == [2]
    assert rig.receive(10, max_bytes=100) == [3]


def test_a_group_stops_at_the_message_that_does_not_fit() -> None:
    rig = Rig(BATCH)
    rig.send("a", size=40)
    rig.send("a", size=400)
    rig.send("a", size=40)
    assert rig.receive(10, max_bytes=100) == [1]
    rig.ack(1)
    assert rig.receive(10, max_bytes=100) == [2]
    rig.ack(2)
    assert rig.receive(10, max_bytes=100) == [3]


# Retention


@every_grouping
def test_a_message_past_its_retention_is_not_handed_out(grouping: Grouping) -> None:
    rig = Rig(grouping, retention_ms=60_000)
    rig.send("a", "a")
    rig.now_ms += 30_000
    rig.send("a", "b")
    rig.now_ms += 30_000
    got = rig.receive(10)
    assert 1 not in got
    assert 2 not in got
    while rig.queue.expired:
        for entry in rig.queue.expired[:]:
            rig.queue.expired.remove(entry)
            rig.queue.finish(entry)
            rig.check()
        got += rig.receive(10)
    assert sorted(got) == [3, 4]


@every_grouping
def test_a_sweep_drops_messages_past_their_retention(grouping: Grouping) -> None:
    rig = Rig(grouping, retention_ms=60_000)
    rig.send("", "a", "a", "b")
    rig.now_ms += 30_000
    rig.send("", "a")
    rig.now_ms += 29_999
    assert rig.queue.drop_past_retention(rig.now_ms, 100) == 0
    rig.now_ms += 1
    assert rig.queue.drop_past_retention(rig.now_ms, 100) == 4
    rig.check()
    assert sorted(entry.seq for entry in rig.queue.expired) == [1, 2, 3, 4]
    for entry in rig.queue.expired:
        rig.queue.finish(entry)
    rig.check()
    assert sorted(rig.drain()) == [5, 6]


def test_a_sweep_stops_at_its_limit() -> None:
    rig = Rig(ONE, retention_ms=1_000)
    rig.send(*[""] * 5, *"aaaab")
    rig.now_ms += 1_000
    assert rig.queue.drop_past_retention(rig.now_ms, 3) == 3
    assert rig.queue.drop_past_retention(rig.now_ms, 3) == 3
    rig.check()
    assert len(rig.queue.expired) == 6


@both_groupings
def test_a_group_is_held_while_a_swept_message_of_it_is_being_settled(grouping: Grouping) -> None:
    rig = Rig(grouping, retention_ms=60_000)
    rig.send("a")
    rig.now_ms += 30_000
    rig.send("a")
    rig.now_ms += 30_000
    assert rig.queue.drop_past_retention(rig.now_ms, 100) == 1
    assert rig.receive() == []
    rig.queue.finish(rig.queue.expired.pop())
    assert rig.receive() == [2]


def test_a_leased_message_is_not_dropped() -> None:
    rig = Rig(ONE, retention_ms=1_000)
    rig.send("a", "a")
    assert rig.receive() == [1]
    rig.now_ms += 1_000
    assert rig.queue.drop_past_retention(rig.now_ms, 100) == 0
    rig.ack(1)


# Dead letters


@every_grouping
def test_a_dead_letter_leaves_when_its_last_delivery_failed(grouping: Grouping) -> None:
    rig = Rig(grouping, max_deliveries=2)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    rig.nack(1)
    assert rig.receive(1) == [1]
    assert rig.queue.dead_letters == []
    rig.nack(1)
    (dead,) = rig.queue.dead_letters
    assert (dead.seq, dead.receive_count) == (1, 2)
    if grouping is not NONE:
        assert rig.receive() == []
    rig.queue.finish(dead)
    assert rig.receive() == [2]


@every_grouping
def test_a_dead_letter_leaves_when_its_last_lease_ran_out(grouping: Grouping) -> None:
    rig = Rig(grouping, max_deliveries=1)
    rig.send("a")
    assert rig.receive() == [1]
    rig.later(LEASE_MS)
    assert [entry.seq for entry in rig.queue.dead_letters] == [1]


@every_grouping
def test_a_dead_letter_leaves_at_the_next_receive(grouping: Grouping) -> None:
    rig = Rig(grouping, max_deliveries=2, dead_letter_at=DeadLetterAt.RECEIVE)
    rig.send("a", "a")
    for _ in range(2):
        assert rig.receive(1) == [1]
        rig.nack(1)
    assert rig.queue.dead_letters == []
    assert rig.queue.counters().visible == 2
    got = rig.receive(1)
    (dead,) = rig.queue.dead_letters
    assert (dead.seq, dead.receive_count) == (1, 2)
    rig.queue.finish(dead)
    assert got + rig.receive() == [2]


@every_grouping
def test_a_dead_letter_that_nobody_takes_comes_back(grouping: Grouping) -> None:
    rig = Rig(grouping, max_deliveries=1)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    rig.nack(1)
    rig.queue.unsettle(rig.queue.dead_letters.pop(), rig.now_ms)
    rig.check()
    assert rig.receive(1) == [1]


# Settlement


@every_grouping
def test_a_refused_settlement_restores_a_running_lease(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    lease_id = rig.lease_of(1)
    settling = rig.settle_late(1, lease_id)
    rig.check()
    rig.now_ms += LEASE_MS - 1
    rig.queue.unsettle(settling, rig.now_ms)
    rig.check()
    assert rig.queue.lease(lease_id, rig.now_ms).seq == 1
    rig.later(1)
    assert rig.receive(1) == [1]


@every_grouping
def test_a_settlement_refused_after_the_lease_ran_out_brings_the_message_back(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", "a")
    assert rig.receive(1) == [1]
    settling = rig.queue.settle(rig.lease_of(1), rig.now_ms)
    rig.later(LEASE_MS)
    rig.queue.unsettle(settling, rig.now_ms)
    rig.check()
    assert rig.receive(1) == [1]


@every_grouping
def test_messages_are_taken_to_be_moved(grouping: Grouping) -> None:
    rig = Rig(grouping, max_deliveries=1, dead_letter_at=DeadLetterAt.RECEIVE, max_in_flight=1)
    rig.send("a", "b", "")
    assert rig.receive(1) == [1]
    rig.nack(1)
    taken = rig.queue.take_for_move(rig.now_ms, 10)
    rig.check()
    assert sorted(entry.seq for entry in taken) == [1, 2, 3]
    assert rig.queue.counters().leased == 0
    assert rig.receive() == []
    for entry in taken[:2]:
        rig.queue.finish(entry)
    rig.queue.unsettle(taken[2], rig.now_ms)
    rig.check()
    assert [entry.seq for entry in rig.queue.take_for_move(rig.now_ms, 10)] == [taken[2].seq]


def test_a_message_leased_or_delayed_is_not_moved() -> None:
    rig = Rig(ONE)
    rig.send("a", "a", "")
    rig.send("", delay_ms=1_000)
    assert 1 in rig.receive(2)
    assert [entry.seq for entry in rig.queue.take_for_move(rig.now_ms, 10)] == []


# Purge, peek


@every_grouping
def test_a_purge_leaves_nothing(grouping: Grouping) -> None:
    rig = Rig(grouping, late_ack=True)
    rig.send("a", "b", "c", "", "d", "e")
    rig.send("z", delay_ms=1_000)
    assert len(rig.receive(4)) == 4
    leased = sorted(entry.seq for entry in rig.queue.leases())
    leases = {seq: rig.lease_of(seq) for seq in leased}
    settling = [rig.queue.settle(leases[seq], rig.now_ms) for seq in leased[:2]]
    rig.nack(leased[2], delay_ms=500)
    assert rig.queue.purge() == 7
    rig.check()
    assert rig.queue.held == 0
    rig.queue.finish(settling[0])
    rig.queue.unsettle(settling[1], rig.now_ms)
    for seq in leased[2:]:
        with pytest.raises(LeaseNotFound):
            rig.queue.settle(leases[seq], rig.now_ms)
    rig.later(10 * LEASE_MS)
    assert rig.receive() == []
    rig.send("a", "z", "")
    assert sorted(rig.receive()) == [8, 9, 10]
    rig.ack(8, 9, 10)
    assert rig.queue.held == 0


@every_grouping
def test_a_peek_walks_everything_and_changes_nothing(grouping: Grouping) -> None:
    rig = Rig(grouping)
    rig.send("a", "b", "a", "", "", "c")
    rig.send("a", delay_ms=1_000)
    rig.receive(2)
    before = rig.queue.counters()
    seen: list[int] = []
    while page := rig.queue.peek(seen[-1] if seen else 0, 3):
        assert len(page) <= 3
        seen += [entry.seq for entry in page]
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert rig.queue.counters() == before
    assert [entry.receive_count for entry in rig.queue.peek(0, 10)].count(1) == 2


def test_what_came_back_is_noted() -> None:
    rig = Rig(max_deliveries=2)
    rig.send("", "")
    rig.receive()
    rig.nack(2)
    rig.later(LEASE_MS)
    assert rig.queue.released is not None
    assert [entry.seq for entry in rig.queue.released] == [2, 1]


def test_the_grouping_of_a_queue_is_fixed() -> None:
    rig = Rig(ONE)
    rig.queue.change_policy(QueuePolicy(grouping=ONE, lease_ms=5))
    with pytest.raises(ValueError, match="grouping"):
        rig.queue.change_policy(QueuePolicy(grouping=BATCH))


# Everything at once


@every_grouping
@pytest.mark.parametrize("late_ack", [True, False])
def test_the_counters_hold_and_groups_stay_in_order_whatever_happens(grouping: Grouping, late_ack: bool) -> None:
    chance = random.Random(f"{grouping} {late_ack}")
    rig = Rig(grouping, late_ack=late_ack, max_in_flight=8, max_in_flight_bytes=300)
    settling: list[Entry] = []
    old_leases: list[int] = []
    gone: set[int] = set()
    delivered: dict[str, int] = {}
    group_of: dict[int, str] = {}
    for _ in range(2_000):
        move = chance.randrange(10)
        leases = list(rig.queue.leases())
        if move <= 1:
            group = chance.choice(["", "a", "b", "c"])
            rig.send(group, size=chance.randrange(1, 90), delay_ms=chance.choice([0, 0, 0, 400]))
            group_of[rig.seq] = group
        elif move <= 3:
            for seq in rig.receive(chance.randrange(1, 5), lease_ms=chance.choice([None, 50, 500])):
                group = group_of[seq]
                if grouping is not NONE and group:
                    assert seq >= delivered.get(group, 0) or seq not in gone
                    before = [other for other in range(1, seq) if group_of[other] == group and other not in gone]
                    busy = {entry.seq for entry in (*rig.queue.leases(), *rig.queue._settling.values())}
                    assert all(other in busy for other in before)
                    if grouping is ONE:
                        assert not before
                    delivered[group] = seq
        elif move == 4 and leases:
            chosen = chance.choice(leases)
            old_leases.append(chosen.lease_id)
            rig.nack(chosen.seq, delay_ms=chance.choice([None, 0, 300])) if chosen.deadline_ms > rig.now_ms else None
        elif move == 5 and leases:
            chosen = chance.choice(leases)
            if late_ack or chosen.deadline_ms > rig.now_ms:
                settling.append(rig.queue.settle(chosen.lease_id, rig.now_ms))
        elif move == 6 and settling:
            done = settling.pop(chance.randrange(len(settling)))
            if chance.random() < 0.6:
                rig.queue.finish(done)
                gone.add(done.seq)
            else:
                rig.queue.unsettle(done, rig.now_ms)
        elif move == 7 and old_leases:
            try:
                settling.append(rig.queue.settle(old_leases.pop(), rig.now_ms))
                assert late_ack
            except LeaseNotFound:
                pass
        elif move == 8:
            rig.later(chance.randrange(200))
        elif move == 9 and chance.random() < 0.3:
            settling += rig.queue.take_for_move(rig.now_ms, 2)
        rig.check()
    assert rig.seq > 250
    assert len(gone) > 50

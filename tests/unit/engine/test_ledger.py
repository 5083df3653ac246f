"""The ledger over a real store: what is durable, what is taken back, and what one queue may not do to another."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.domain.ids import TsidFactory
from penstock.domain.message import Message
from penstock.engine.blocking_shell import BlockingShell
from penstock.engine.errors import (
    LeaseNotFound,
    QueueExists,
    QueueNotFound,
    StoreFailed,
    StreamExists,
    StreamNotFound,
)
from penstock.engine.ledger import Ledger
from penstock.engine.pending import Pending, Receipt
from penstock.engine.queue.entry import Entry
from penstock.engine.queue.policy import DeadLetterAt, Grouping, QueuePolicy, Window
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import QueueRecord, Shares, WriteBatch
from penstock.engine.store.sqlite import SqliteStore
from penstock.engine.stored_queue import StoredQueue
from penstock.engine.stream import Stream
from penstock.testing.clock import VirtualClock

DEDUP_MS = 300_000
POLICY = QueuePolicy(lease_ms=30_000, late_ack=True)
SMALL = Window(messages=5, size_bytes=2_000, lookahead=12)


class TouchyStore(SqliteStore):
    """A store that refuses when told to."""

    refusals = 0

    def apply(self, batch: WriteBatch) -> Shares:
        if self.refusals:
            self.refusals -= 1
            raise StoreFailed("refused by the test")
        return super().apply(batch)


class Rig:
    """A ledger on a store in a directory, with a stream `s` and a queue `q` of it."""

    def __init__(self, directory: Path, window: Window | None = None, policy: QueuePolicy = POLICY) -> None:
        self.path = directory / "queue.db"
        self.clock = VirtualClock()
        self.factory = TsidFactory(1)
        self.window = window
        self.policy = policy
        self.sent = 0
        self.open()
        self.shell.commit(self.ledger.catalog.create_stream("s", self.now_ms, dedup_window_ms=DEDUP_MS))
        self.add_queue("q")

    def open(self) -> None:
        self.store = TouchyStore(self.path, durability="survives-process-crash-only")
        self.ledger = Ledger(self.store, self.factory, self.window)
        self.shell = BlockingShell(self.ledger, self.clock)
        self.ledger.catalog.open(self.now_ms, self.policy_of, lambda _: DEDUP_MS)

    def reopen(self) -> None:
        """As after a crash: what was not committed is gone."""
        self.store.close()
        self.open()

    def policy_of(self, _: QueueRecord) -> QueuePolicy:
        return self.policy

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def stream(self) -> Stream:
        return self.ledger.catalog.stream("s")

    def queue(self, name: str = "q") -> StoredQueue:
        return self.ledger.catalog.queue(name)

    def add_queue(self, name: str, stream: str = "s") -> None:
        target = self.ledger.catalog.stream(stream)
        self.shell.commit(self.ledger.catalog.create_queue(target, name, self.policy, self.now_ms))

    def messages(self, count: int = 1, *, group: str = "", dedup_id: str = "", size: int = 10) -> list[Message]:
        made = []
        for _ in range(count):
            self.sent += 1
            made.append(Message(f"m{self.sent}", b"x" * size, self.now_ms, size, group, dedup_id=dedup_id))
        return made

    def send(self, count: int = 1, *, group: str = "", dedup_id: str = "") -> list[Receipt]:
        pending = self.ledger.send(self.stream, self.messages(count, group=group, dedup_id=dedup_id), self.now_ms)
        self.shell.commit(pending)
        return pending.receipts

    def receive(self, limit: int = 100, queue: str = "q") -> list[Entry]:
        return self.shell.receive(self.queue(queue), limit)

    def ids(self, limit: int = 100, queue: str = "q") -> list[str]:
        return [entry.message.id for entry in self.receive(limit, queue)]

    def ack(self, *entries: Entry, queue: str = "q") -> None:
        self.shell.commit(self.ledger.ack(self.queue(queue), [entry.lease_id for entry in entries], self.now_ms))

    def stored_segments(self) -> int:
        """How many segments the store keeps."""
        assert self.store._reader is not None
        return int(self.store._reader.execute("SELECT count(*) FROM segments").fetchone()[0])

    def stored_rows(self, table: str) -> int:
        assert self.store._reader is not None
        return int(self.store._reader.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def paged(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, SMALL)
    yield made
    made.store.close()


# What survives


def test_what_was_sent_survives_and_what_was_acknowledged_does_not(rig: Rig) -> None:
    rig.send(5)
    one, two, *_ = rig.receive(3)
    rig.ack(one, two)
    rig.reopen()
    assert rig.queue().counters().total == 3
    assert rig.ids() == ["m3", "m4", "m5"]


def test_nothing_is_visible_before_its_commit(rig: Rig) -> None:
    pending = rig.ledger.send(rig.stream, rig.messages(2), rig.now_ms)
    assert rig.ledger.receive(rig.queue(), rig.now_ms, 10) == []
    assert rig.queue().total == 2
    assert not pending.done
    rig.shell.commit(pending)
    assert rig.ids() == ["m1", "m2"]


def test_delivery_counts_of_returned_messages_survive(rig: Rig) -> None:
    rig.send(2)
    first_ms = rig.now_ms
    for _ in range(3):
        entry, _ = rig.receive()
        rig.clock.advance(31)
        rig.shell.run_due()
    assert entry.receive_count == 3
    rig.reopen()
    one, two = rig.receive()
    assert (one.receive_count, one.first_received_ms) == (4, first_ms)
    rig.ack(one, two)
    assert rig.stored_rows("deliveries") == 0
    assert rig.stored_segments() == 0


def test_leases_of_a_store_that_is_opened_again_have_ids_of_their_own_though_the_clock_stands_still(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, policy=QueuePolicy(lease_ms=30_000, keep_leases=True))
    rig.send(40)
    before = rig.receive(20)
    rig.shell.commit(rig.ledger.save_leases(rig.queue(), before))
    rig.reopen()
    rig.ledger.restore_leases(rig.now_ms)
    after = rig.receive(20)
    assert {entry.lease_id for entry in before}.isdisjoint(entry.lease_id for entry in after)
    rig.clock.advance(31)
    assert rig.ids() == [f"m{number}" for number in range(1, 41)]
    rig.store.close()


def test_sequence_numbers_are_never_used_again(rig: Rig) -> None:
    (before,) = rig.send()
    rig.ack(*rig.receive())
    rig.reopen()
    (after,) = rig.send()
    assert after.seq > before.seq


def test_sequence_numbers_are_never_used_again_after_a_refused_commit(rig: Rig) -> None:
    rig.store.refusals = 1
    with pytest.raises(StoreFailed):
        rig.send()
    receipts = rig.send(3)
    rig.reopen()
    (after,) = rig.send()
    assert after.seq > receipts[-1].seq
    assert rig.ids() == ["m2", "m3", "m4", "m5"]


def test_sends_gathered_while_a_commit_is_refused_reserve_their_own_numbers(rig: Rig) -> None:
    refused = rig.ledger.send(rig.stream, rig.messages(), rig.now_ms)
    commit = rig.ledger.take_commit()
    assert commit is not None
    kept = rig.ledger.send(rig.stream, rig.messages(), rig.now_ms)
    rig.ledger.failed(commit, StoreFailed("refused by the test"), rig.now_ms)
    assert refused.done
    rig.shell.commit(kept)
    rig.reopen()
    (after,) = rig.send()
    assert after.seq > kept.receipts[0].seq
    assert rig.ids() == ["m2", "m3"]


@pytest.mark.parametrize("by", ["purge", "create_queue"])
def test_a_queue_that_starts_after_a_refused_send_gets_what_is_sent_after_a_crash(rig: Rig, by: str) -> None:
    rig.store.refusals = 1
    with pytest.raises(StoreFailed):
        rig.send(3)
    if by == "purge":
        rig.shell.commit(rig.ledger.catalog.purge(rig.queue()))
    else:
        rig.add_queue("r")
    rig.reopen()
    rig.send(2)
    assert rig.ids(queue="q" if by == "purge" else "r") == ["m4", "m5"]


# What is refused


def test_a_refused_send_leaves_nothing(rig: Rig) -> None:
    rig.store.refusals = 1
    with pytest.raises(StoreFailed, match="refused by the test"):
        rig.send(3, dedup_id="d")
    assert rig.queue().total == 0
    assert rig.ids() == []
    (again,) = rig.send(dedup_id="d")
    assert again.message_id == "m4"
    rig.reopen()
    assert rig.ids() == ["m4"]


def test_a_refused_acknowledgement_leaves_the_lease(rig: Rig) -> None:
    rig.send(3)
    entries = rig.receive()
    rig.store.refusals = 1
    with pytest.raises(StoreFailed):
        rig.ack(*entries[:2])
    assert rig.queue().counters().leased == 3
    rig.ack(*entries)
    rig.reopen()
    assert rig.queue().total == 0


def test_acknowledgements_around_a_refused_one_are_kept(rig: Rig) -> None:
    rig.send(4)
    one, two, three, four = rig.receive()
    rig.ack(one)
    rig.store.refusals = 1
    with pytest.raises(StoreFailed):
        rig.ack(two)
    rig.ack(three)
    rig.reopen()
    assert rig.ids() == [two.message.id, four.message.id]


def test_a_refused_change_of_the_catalog_leaves_it_as_it_was(rig: Rig) -> None:
    rig.send(2)
    catalog = rig.ledger.catalog
    changes: tuple[Callable[[], Pending], ...] = (
        lambda: catalog.create_stream("other", rig.now_ms),
        lambda: catalog.create_queue(rig.stream, "other", POLICY, rig.now_ms),
        lambda: catalog.drop_queue(rig.queue()),
        lambda: catalog.drop_stream(rig.stream),
        lambda: catalog.purge(rig.queue()),
        lambda: catalog.configure_queue(rig.queue(), QueuePolicy(lease_ms=1), b"new"),
        lambda: catalog.configure_stream(rig.stream, b"new", name="renamed"),
    )
    for change in changes:
        rig.store.refusals = 1
        with pytest.raises(StoreFailed):
            rig.shell.commit(change())
        assert list(catalog.streams) == ["s"]
        assert list(catalog.queues) == ["q"]
        assert rig.queue().engine.policy == POLICY
        assert (rig.stream.config, rig.queue().config) == (b"", b"")
        assert rig.queue().counters().visible == 2
    rig.shell.commit(catalog.create_stream("other", rig.now_ms))
    rig.add_queue("other", "other")
    assert rig.ids() == ["m1", "m2"]


def test_a_refused_move_leaves_both_sides_as_they_were(rig: Rig) -> None:
    rig.shell.commit(rig.ledger.catalog.create_stream("t", rig.now_ms))
    rig.add_queue("tq", "t")
    rig.send(3)
    rig.store.refusals = 1
    pending, count = rig.ledger.redrive(rig.queue(), rig.ledger.catalog.stream("t"), rig.now_ms, 10)
    assert count == 3
    with pytest.raises(StoreFailed):
        rig.shell.commit(pending)
    assert rig.queue("tq").total == 0
    assert rig.queue().counters().visible == 3
    pending, _ = rig.ledger.redrive(rig.queue(), rig.ledger.catalog.stream("t"), rig.now_ms, 10)
    rig.shell.commit(pending)
    rig.reopen()
    assert rig.queue().total == 0
    assert rig.ids(queue="tq") == ["m1", "m2", "m3"]


def test_an_acknowledgement_with_one_bad_lease_changes_nothing(rig: Rig) -> None:
    rig.send(2)
    late, live = rig.receive()
    rig.ledger.release(rig.queue(), late.lease_id, rig.now_ms, 60_000)
    before = rig.queue().counters()
    with pytest.raises(LeaseNotFound):
        rig.ledger.ack(rig.queue(), [live.lease_id, late.lease_id, 999], rig.now_ms)
    assert rig.queue().counters() == before
    rig.ack(live)
    rig.shell.commit(rig.ledger.settle(rig.queue(), [rig.queue().engine.settle_late(late.seq)]))
    assert rig.queue().total == 0


# Deduplication


def test_a_refused_purge_remembers_deduplication_ids_again(rig: Rig) -> None:
    (before,) = rig.send(dedup_id="d")
    rig.store.refusals = 1
    with pytest.raises(StoreFailed):
        rig.shell.commit(rig.ledger.catalog.purge(rig.queue(), forget_ids=True))
    assert rig.send(dedup_id="d") == [before]
    rig.shell.commit(rig.ledger.catalog.purge(rig.queue(), forget_ids=True))
    (after,) = rig.send(dedup_id="d")
    assert after != before
    rig.reopen()
    assert rig.send(dedup_id="d") == [after]
    assert rig.ids() == [after.message_id]


def test_a_duplicate_is_answered_with_the_first_message(rig: Rig) -> None:
    (first,) = rig.send(dedup_id="d")
    (second,) = rig.send(dedup_id="d")
    assert second == Receipt(first.message_id, first.seq)
    rig.ack(*rig.receive())
    rig.reopen()
    (third,) = rig.send(dedup_id="d")
    assert third == second
    assert rig.ids() == []
    rig.clock.advance(DEDUP_MS / 1000)
    (fourth,) = rig.send(dedup_id="d")
    assert fourth.message_id != first.message_id


def test_duplicates_within_one_send(rig: Rig) -> None:
    receipts = rig.send(3, dedup_id="d")
    assert receipts == [receipts[0]] * 3
    assert rig.ids() == ["m1"]


def test_a_duplicate_of_a_send_that_fails_fails_too(rig: Rig) -> None:
    original = rig.ledger.send(rig.stream, rig.messages(dedup_id="d"), rig.now_ms)
    commit = rig.ledger.take_commit()
    assert commit is not None
    duplicate = rig.ledger.send(rig.stream, rig.messages(dedup_id="d"), rig.now_ms)
    rig.ledger.failed(commit, StoreFailed("refused by the test"), rig.now_ms)
    with pytest.raises(StoreFailed):
        original.result()
    with pytest.raises(StoreFailed):
        rig.shell.commit(duplicate)
    (again,) = rig.send(dedup_id="d")
    assert again.message_id == "m3"
    assert rig.ids() == ["m3"]


def test_a_moved_message_leaves_the_deduplication_of_its_target_alone(rig: Rig) -> None:
    rig.shell.commit(rig.ledger.catalog.create_stream("t", rig.now_ms))
    rig.add_queue("tq", "t")
    target = rig.stream
    (first,) = rig.send(dedup_id="known")
    for dedup_id in ("known", "new"):
        pending = rig.ledger.send(rig.ledger.catalog.stream("t"), rig.messages(dedup_id=dedup_id), rig.now_ms)
        rig.shell.commit(pending)
    rig.store.refusals = 1
    moved, _ = rig.ledger.redrive(rig.queue("tq"), target, rig.now_ms, 10)
    with pytest.raises(StoreFailed):
        rig.shell.commit(moved)
    assert rig.send(dedup_id="known") == [Receipt(first.message_id, first.seq)]
    moved, count = rig.ledger.redrive(rig.queue("tq"), target, rig.now_ms, 10)
    rig.shell.commit(moved)
    assert count == 2
    rig.reopen()
    assert rig.send(dedup_id="known") == [Receipt(first.message_id, first.seq)]
    (fresh,) = rig.send(dedup_id="new")
    assert fresh.message_id == f"m{rig.sent}"


# Several queues of one stream


def test_every_queue_gets_every_message_and_a_body_is_stored_once(rig: Rig) -> None:
    rig.add_queue("r")
    rig.send(3)
    assert rig.stored_segments() == 1
    rig.ack(*rig.receive())
    assert rig.stored_segments() == 1
    rig.reopen()
    assert rig.queue().total == 0
    entries = rig.receive(queue="r")
    assert [entry.message.id for entry in entries] == ["m1", "m2", "m3"]
    rig.ack(*entries, queue="r")
    assert rig.stored_segments() == 0
    assert rig.stored_rows("acks") == 0


def test_a_queue_gets_what_is_sent_from_its_making_on(rig: Rig) -> None:
    rig.send(2)
    before = rig.ledger.send(rig.stream, rig.messages(), rig.now_ms)
    making = rig.ledger.catalog.create_queue(rig.stream, "r", POLICY, rig.now_ms)
    after = rig.ledger.send(rig.stream, rig.messages(), rig.now_ms)
    for pending in (before, making, after):
        rig.shell.commit(pending)
    rig.reopen()
    assert rig.ids(queue="r") == ["m4"]
    assert rig.ids() == ["m1", "m2", "m3", "m4"]


def test_a_queue_skips_what_does_not_concern_it(rig: Rig) -> None:
    rig.add_queue("r")
    queue = rig.queue("r")
    rig.shell.commit(rig.ledger.send(rig.stream, rig.messages(3), rig.now_ms, skips={queue.id: 0b101}))
    rig.shell.commit(rig.ledger.send(rig.stream, rig.messages(2), rig.now_ms, skips={queue.id: 0b11}))
    assert queue.counters().total == 1
    rig.reopen()
    assert rig.queue("r").counters().total == 1
    rig.ack(*rig.receive())
    rig.reopen()
    (only,) = rig.receive(queue="r")
    assert only.message.id == "m2"
    rig.ack(only, queue="r")
    assert rig.stored_segments() == 0


def test_a_segment_nobody_is_concerned_with_is_removed(rig: Rig) -> None:
    rig.shell.commit(rig.ledger.send(rig.stream, rig.messages(2), rig.now_ms, skips={rig.queue().id: 0b11}))
    assert rig.stored_segments() == 0
    assert rig.queue().total == 0


def test_dropping_a_queue_frees_what_only_it_needed(rig: Rig) -> None:
    rig.add_queue("r")
    rig.send(2)
    rig.ack(*rig.receive())
    rig.send(1)
    rig.shell.commit(rig.ledger.catalog.drop_queue(rig.queue("r")))
    assert rig.stored_segments() == 1
    with pytest.raises(QueueNotFound):
        rig.queue("r")
    rig.reopen()
    assert rig.ids() == ["m3"]
    rig.ack(*(entry for entry in rig.queue().engine.leases()))
    assert rig.stored_segments() == 0


def test_an_acknowledgement_on_a_queue_being_dropped_takes_nothing_from_another(rig: Rig) -> None:
    rig.add_queue("r")
    rig.send(1)
    dropped = rig.queue("r")
    (entry,) = rig.receive(queue="r")
    drop = rig.ledger.catalog.drop_queue(dropped)
    commit = rig.ledger.take_commit()
    assert commit is not None
    late = rig.ledger.ack(dropped, [entry.lease_id], rig.now_ms)  # while the drop is being written
    rig.ledger.committed(commit, rig.store.apply(commit.batch), rig.now_ms)
    assert drop.done
    rig.shell.commit(late)
    assert rig.stored_segments() == 1
    assert rig.stored_rows("acks") == 0
    rig.reopen()
    assert rig.ids() == ["m1"]


def test_a_release_on_a_queue_being_dropped_leaves_no_trace(rig: Rig) -> None:
    rig.add_queue("r")
    rig.send(1)
    dropped = rig.queue("r")
    (entry,) = rig.receive(queue="r")
    rig.ledger.catalog.drop_queue(dropped)
    commit = rig.ledger.take_commit()
    assert commit is not None
    rig.ledger.release(dropped, entry.lease_id, rig.now_ms)
    rig.ledger.committed(commit, rig.store.apply(commit.batch), rig.now_ms)
    rig.shell.commit()
    assert rig.stored_rows("deliveries") == 0


def test_dropping_a_stream_leaves_nothing(rig: Rig) -> None:
    rig.add_queue("r")
    rig.send(3, dedup_id="d")
    rig.receive(1)
    rig.shell.commit(rig.ledger.catalog.drop_stream(rig.stream))
    with pytest.raises(StreamNotFound):
        _ = rig.stream
    with pytest.raises(QueueNotFound):
        rig.queue("r")
    for table in ("streams", "queues", "segments", "acks", "deliveries", "dedups"):
        assert rig.stored_rows(table) == 0, table


def test_names_are_taken_once(rig: Rig) -> None:
    catalog = rig.ledger.catalog
    with pytest.raises(StreamExists, match="s"):
        catalog.create_stream("s", rig.now_ms)
    with pytest.raises(QueueExists, match="q"):
        catalog.create_queue(rig.stream, "q", POLICY, rig.now_ms)
    making = catalog.create_stream("t", rig.now_ms)
    with pytest.raises(StreamExists):
        catalog.create_stream("t", rig.now_ms)
    rig.shell.commit(making)


# Purge


def test_a_purge_takes_what_was_sent_before_it_and_nothing_after(paged: Rig) -> None:
    paged.add_queue("r")
    paged.send(3)
    paged.send(10)
    paged.receive(2)
    before = paged.ledger.send(paged.stream, paged.messages(), paged.now_ms)
    purge = paged.ledger.catalog.purge(paged.queue())
    after = paged.ledger.send(paged.stream, paged.messages(), paged.now_ms)
    for pending in (before, purge, after):
        paged.shell.commit(pending)
    assert paged.queue().counters().total == paged.queue().total == 1
    assert paged.ids() == ["m15"]
    assert paged.queue("r").total == 15
    paged.reopen()
    assert paged.ids() == ["m15"]
    assert paged.queue("r").total == 15


def test_an_acknowledgement_overtaken_by_a_purge_is_done(rig: Rig) -> None:
    rig.send(3)
    one, two, _ = rig.receive()
    with_purge = rig.ledger.ack(rig.queue(), [one.lease_id], rig.now_ms)
    purge = rig.ledger.catalog.purge(rig.queue())
    commit = rig.ledger.take_commit()
    assert commit is not None
    after_purge = rig.ledger.ack(rig.queue(), [two.lease_id], rig.now_ms)
    rig.ledger.committed(commit, rig.store.apply(commit.batch), rig.now_ms)
    assert purge.done
    assert with_purge.done
    assert with_purge.error is None
    rig.store.refusals = 1
    with pytest.raises(StoreFailed):
        rig.shell.commit(after_purge)
    assert rig.queue().total == 0
    assert rig.stored_segments() == 0
    assert rig.stored_rows("acks") == 0


# Pages


def test_a_deep_backlog_stays_in_the_store(paged: Rig) -> None:
    for _ in range(40):
        paged.send(2)
    queue = paged.queue()
    assert queue.engine.held <= SMALL.messages + 1
    assert queue.counters().total == queue.total == 80
    assert queue.counters().total_bytes == queue.total_bytes == 800
    seen = []
    while entries := paged.receive(7):
        assert queue.engine.held <= SMALL.lookahead + SMALL.messages
        seen += [entry.message.id for entry in entries]
        paged.ack(*entries)
    assert seen == [f"m{number}" for number in range(1, 81)]
    assert queue.total == 0
    assert paged.stored_segments() == 0


def test_a_commit_that_a_page_has_already_seen_is_let_in_once(paged: Rig) -> None:
    for _ in range(8):
        paged.send(1)
    queue = paged.queue()
    assert queue.next_stored_seq is not None
    paged.ack(*paged.receive(5))
    send = paged.ledger.send(paged.stream, paged.messages(2), paged.now_ms)
    commit = paged.ledger.take_commit()
    assert commit is not None
    shares = paged.store.apply(commit.batch)
    while (page := paged.ledger.read_page(queue)) is not None:  # as the reader thread may, before the loop hears
        paged.ledger.install_page(queue, page, paged.now_ms)
    paged.ledger.committed(commit, shares, paged.now_ms)
    assert send.done
    assert queue.total == queue.counters().total == 5
    assert paged.ids() == ["m6", "m7", "m8", "m9", "m10"]


def test_what_is_sent_while_a_page_is_read_comes_after_it(paged: Rig) -> None:
    for _ in range(8):
        paged.send(1)
    queue = paged.queue()
    paged.ack(*paged.receive(5))
    page = paged.ledger.read_page(queue)
    paged.send(2)
    if page is not None:
        paged.ledger.install_page(queue, page, paged.now_ms)
    assert paged.ids() == ["m6", "m7", "m8", "m9", "m10"]
    assert queue.total == 5


def test_a_page_read_before_a_purge_is_not_let_in(paged: Rig) -> None:
    for _ in range(12):
        paged.send(1)
    queue = paged.queue()
    page = paged.ledger.read_page(queue)
    assert page is not None
    paged.shell.commit(paged.ledger.catalog.purge(queue))
    for _ in range(8):
        paged.send(1)
    paged.ledger.install_page(queue, page, paged.now_ms)
    assert paged.ids() == [f"m{number}" for number in range(13, 21)]


def test_groups_stay_in_order_across_pages(tmp_path: Path) -> None:
    rig = Rig(tmp_path, SMALL, QueuePolicy(grouping=Grouping.ONE))
    for number in range(30):
        rig.send(1, group="ab"[number % 2])
    seen: list[int] = []
    while entries := rig.receive(2):
        assert len({entry.message.group for entry in entries}) == len(entries)
        seen += [entry.seq for entry in entries]
        rig.ack(*entries)
    assert seen[::2] == sorted(seen[::2])
    assert seen[1::2] == sorted(seen[1::2])
    assert len(seen) == 30
    rig.store.close()


# Time


def test_dead_letters_are_handed_over_with_the_commit_that_settles_them(tmp_path: Path) -> None:
    policy = QueuePolicy(max_deliveries=1, dead_letter_at=DeadLetterAt.RELEASE)
    rig = Rig(tmp_path, policy=policy)
    rig.shell.commit(rig.ledger.catalog.create_stream("dead", rig.now_ms))
    rig.add_queue("dq", "dead")
    target = rig.ledger.catalog.stream("dead")
    queue = rig.queue()

    def hand_over(entries: list[Entry]) -> None:
        rig.ledger.move(queue, entries, target, [entry.message for entry in entries])

    queue.on_dead_letters = hand_over
    rig.send(2)
    one, two = rig.receive()
    rig.ledger.release(queue, one.lease_id, rig.now_ms)
    rig.store.refusals = 1
    rig.shell.commit()
    assert (queue.total, rig.queue("dq").total) == (2, 0)
    (again,) = rig.receive()
    assert again.message.id == "m1"
    rig.ledger.release(queue, again.lease_id, rig.now_ms)
    rig.shell.commit()
    rig.ack(two)
    rig.reopen()
    assert rig.queue().total == 0
    assert rig.ids(queue="dq") == ["m1"]
    rig.store.close()


def test_a_dead_letter_without_a_target_stays(tmp_path: Path) -> None:
    rig = Rig(tmp_path, policy=QueuePolicy(max_deliveries=1))
    rig.send(1)
    for _ in range(3):
        (entry,) = rig.receive()
        rig.ledger.release(rig.queue(), entry.lease_id, rig.now_ms)
    assert rig.queue().total == 1
    rig.store.close()


def test_a_sweep_removes_what_is_past_its_retention_from_the_store(tmp_path: Path) -> None:
    rig = Rig(tmp_path, policy=QueuePolicy(retention_ms=60_000))
    rig.send(2, dedup_id="")
    rig.clock.advance(30)
    rig.send(1, dedup_id="d")
    rig.clock.advance(30)
    rig.ledger.sweep(rig.now_ms)
    rig.shell.commit()
    assert rig.queue().total == 1
    rig.clock.advance(DEDUP_MS / 1000)
    rig.ledger.sweep(rig.now_ms)
    rig.shell.commit()
    assert rig.queue().total == 0
    assert rig.stored_segments() == 0
    assert rig.stored_rows("dedups") == 0
    rig.store.close()


def test_the_schedule_knows_when_something_is_due(rig: Rig) -> None:
    assert rig.ledger.next_due_ms() is None
    rig.send(1)
    (entry,) = rig.receive()
    assert rig.ledger.next_due_ms() == rig.now_ms + POLICY.lease_ms
    rig.ledger.set_deadline(rig.queue(), entry.lease_id, rig.now_ms + 5, rig.now_ms)
    assert rig.ledger.next_due_ms() == rig.now_ms + 5
    rig.clock.advance(0.005)
    rig.shell.run_due()
    assert rig.queue().counters().visible == 1


# Without a store


def test_in_memory_every_operation_is_complete_when_it_returns() -> None:
    clock = VirtualClock()
    ledger = Ledger(MemoryStore(), TsidFactory(1))
    assert ledger.catalog.create_stream("s", clock.now_ms(), dedup_window_ms=DEDUP_MS).done
    stream = ledger.catalog.stream("s")
    assert ledger.catalog.create_queue(stream, "q", POLICY, clock.now_ms()).done
    queue = ledger.catalog.queue("q")
    message = Message("m1", b"", clock.now_ms(), 1, dedup_id="d")
    first, second = ledger.send(stream, [message, message], clock.now_ms()).receipts
    assert second == first
    (entry,) = ledger.receive(queue, clock.now_ms(), 10)
    assert ledger.ack(queue, [entry.lease_id], clock.now_ms()).done
    assert queue.total == 0
    assert ledger.catalog.purge(queue).done
    assert ledger.catalog.drop_queue(queue).done
    assert ledger.catalog.drop_stream(stream).done
    assert not ledger.has_unwritten()

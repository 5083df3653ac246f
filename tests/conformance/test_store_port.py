"""What every durable store promises, read back through a close and a reopen wherever that is the point."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from penstock.domain.errors import FailedPrecondition
from penstock.engine.errors import StoreFailed, StoreLocked
from penstock.engine.store.port import (
    AckRow,
    DamagedRow,
    DedupRow,
    DeliveryRow,
    QueueRecord,
    SegmentRow,
    Store,
    StoredSegment,
    StoreTotals,
    StreamRecord,
    WriteBatch,
)
from penstock.engine.store.postgres import PostgresStore
from penstock.engine.store.sqlite import SqliteStore

LARGEST = 2**63 - 1
UNLIMITED = 1 << 40

NewStore = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A path or URL with nothing in it yet."""
    return str(request.getfixturevalue("postgres_database")) if backend == "postgres" else str(tmp_path / "q.db")


@pytest.fixture
def new_store(backend: str, place: str) -> Iterator[NewStore]:
    """Makes stores on one place; whatever is open is closed at the end."""
    made: list[Store] = []

    def make() -> Store:
        made.append(PostgresStore(place) if backend == "postgres" else SqliteStore(place))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(new_store: NewStore) -> Store:
    """An open store with a stream 1 of queues 10 and 11, and a stream 2 of queue 20."""
    opened = new_store()
    assert opened.open() == ([], [])
    opened.apply(
        WriteBatch(
            put_streams=[StreamRecord(1, "one", b"c1"), StreamRecord(2, "two", b"c2")],
            put_queues=[queue(10, 1), queue(11, 1), queue(20, 2)],
        )
    )
    return opened


def queue(queue_id: int, stream_id: int, start_seq: int = 0) -> QueueRecord:
    return QueueRecord(queue_id, stream_id, f"queue {queue_id}", b"config", start_seq)


def segment(stream_id: int, first_seq: int, count: int = 10, size_bytes: int = 100) -> SegmentRow:
    return SegmentRow(stream_id, first_seq, count, size_bytes, [b"payload of ", b"%d" % first_seq])


def done(queue_id: int, stream_id: int, first_seq: int) -> AckRow:
    return AckRow(queue_id, stream_id, first_seq, None, 10, 100)


def partly(queue_id: int, stream_id: int, first_seq: int, dead: bytes = b"\x03", count: int = 2) -> AckRow:
    return AckRow(queue_id, stream_id, first_seq, dead, count, count * 10)


def first_seqs(store: Store, queue_id: int, from_seq: int = 0) -> list[int]:
    return [stored.first_seq for stored in store.read(queue_id, from_seq, UNLIMITED, UNLIMITED)]


def reopened(store: Store) -> Store:
    store.close()
    store.open()
    return store


def contents(store: Store) -> object:
    """Everything a store holds, as seen through the port."""
    store.close()
    streams, queues = store.open()
    return (
        streams,
        queues,
        [(store.read(q.id, 0, UNLIMITED, UNLIMITED), store.totals(q.id)) for q in queues],
        [store.deliveries(q.id, 0, LARGEST) for q in queues],
        store.dedups(0),
        store.shares(),
        store.damaged(),
    )


class TestCatalog:
    @pytest.mark.parametrize(
        "name",
        [
            "",
            " ",
            "a'b\"c\\d`e",
            "%s {0} ?1 $1 :x",
            "日本語",
            "👩‍👩‍👧",
            "e\u0301",
            "\u202eright to left",
            "a\nb\tc\x01",
            "\ufffe",
            "x" * 5000,
        ],
    )
    def test_names_and_configs_come_back_as_they_were(self, store: Store, name: str) -> None:
        config = bytes(range(256))
        store.apply(
            WriteBatch(
                put_streams=[StreamRecord(LARGEST, name, config, LARGEST)],
                put_queues=[QueueRecord(LARGEST, LARGEST, name, config, LARGEST)],
            )
        )
        store.close()
        streams, queues = store.open()
        assert streams[-1] == StreamRecord(LARGEST, name, config, LARGEST)
        assert queues[-1] == QueueRecord(LARGEST, LARGEST, name, config, LARGEST)

    def test_a_record_is_replaced_by_its_id(self, store: Store) -> None:
        store.apply(WriteBatch(put_streams=[StreamRecord(1, "new", b"n")], put_queues=[QueueRecord(10, 1, "nq", b"q")]))
        store.close()
        streams, queues = store.open()
        assert streams == [StreamRecord(1, "new", b"n"), StreamRecord(2, "two", b"c2")]
        assert queues == [QueueRecord(10, 1, "nq", b"q"), queue(11, 1), queue(20, 2)]

    def test_limits_and_starts_never_go_back(self, store: Store) -> None:
        store.apply(WriteBatch(seq_limits={1: 500, 2: 70}, purge_queues=[(10, 300)]))
        store.apply(
            WriteBatch(
                seq_limits={2: 60},
                put_streams=[StreamRecord(1, "one", b"c1", 0)],
                put_queues=[queue(10, 1)],
                purge_queues=[(10, 200)],
            )
        )
        store.close()
        streams, queues = store.open()
        assert [stream.seq_limit for stream in streams] == [500, 70]
        assert queues[0].start_seq == 300

    def test_an_unknown_queue_has_nothing(self, store: Store) -> None:
        assert store.read(99, 0, 10, 10) == []
        assert store.totals(99) == StoreTotals(0, 0)
        assert store.deliveries(99, 0, LARGEST) == []

    def test_an_empty_batch_is_no_harm(self, store: Store) -> None:
        before = contents(store)
        assert store.apply(WriteBatch()) == {}
        assert contents(store) == before

    def test_it_is_durable(self, store: Store) -> None:
        assert store.durable


class TestSegments:
    def test_frames_come_back_joined_to_every_queue_of_the_stream(self, store: Store) -> None:
        frames = [b"", bytes(range(256)) * 300, b"\x00", b"end"]
        store.apply(WriteBatch(segments=[SegmentRow(1, 5, 3, 77, frames)]))
        expected = [StoredSegment(5, 3, 77, b"".join(frames), None)]
        reopened(store)
        assert store.read(10, 0, 100, 100) == expected
        assert store.read(11, 0, 100, 100) == expected
        assert store.read(20, 0, 100, 100) == []

    def test_they_are_read_in_order_from_a_sequence_number_on(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, 30), segment(1, 10)]))
        store.apply(WriteBatch(segments=[segment(1, 20), segment(2, 15), segment(1, 0)]))
        assert first_seqs(store, 10) == [0, 10, 20, 30]
        assert first_seqs(store, 10, 11) == [20, 30]
        assert first_seqs(store, 10, 20) == [20, 30]
        assert first_seqs(store, 10, 31) == []
        assert first_seqs(store, 20) == [15]

    def test_a_queue_is_not_concerned_with_what_is_before_its_start(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, n) for n in (0, 10, 20)], put_queues=[queue(12, 1, 10)]))
        assert first_seqs(store, 12) == [10, 20]
        assert store.totals(12) == StoreTotals(20, 200)

    @pytest.mark.parametrize(
        ("max_messages", "max_bytes", "expected"),
        [
            (1, UNLIMITED, [0]),
            (10, UNLIMITED, [0]),
            (11, UNLIMITED, [0, 10]),
            (20, UNLIMITED, [0, 10]),
            (UNLIMITED, 1, [0]),
            (UNLIMITED, 100, [0]),
            (UNLIMITED, 101, [0, 10]),
            (25, 150, [0, 10]),
            (0, 0, [0]),
            (UNLIMITED, UNLIMITED, [0, 10, 20, 30]),
        ],
    )
    def test_a_read_ends_with_the_segment_that_reaches_a_limit(
        self, store: Store, max_messages: int, max_bytes: int, expected: list[int]
    ) -> None:
        store.apply(WriteBatch(segments=[segment(1, n) for n in (0, 10, 20, 30)]))
        assert [stored.first_seq for stored in store.read(10, 0, max_messages, max_bytes)] == expected

    def test_limits_do_not_count_segments_the_queue_is_done_with(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, n) for n in range(0, 50, 10)]))
        store.apply(WriteBatch(acks=[done(10, 1, 0), done(10, 1, 20)]))
        assert [stored.first_seq for stored in store.read(10, 0, 20, UNLIMITED)] == [10, 30]

    @pytest.mark.parametrize("size_bytes", [10, 50_000])
    def test_many_in_one_batch(self, store: Store, size_bytes: int) -> None:
        rows = [SegmentRow(1, n, 1, size_bytes, [b"%d" % n, bytes(size_bytes)]) for n in range(120)]
        store.apply(WriteBatch(segments=rows, acks=[done(10, 1, 7)], seq_limits={1: 120}))
        stored = reopened(store).read(11, 0, UNLIMITED, UNLIMITED)
        assert [s.payload for s in stored] == [b"".join(row.frames) for row in rows]
        assert len(first_seqs(store, 10)) == 119

    def test_dropping_one_forgets_what_any_queue_said_of_it(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, 0), segment(1, 10), segment(2, 0)]))
        store.apply(WriteBatch(acks=[partly(10, 1, 0), done(11, 1, 0), partly(20, 2, 0), partly(10, 1, 10)]))
        store.apply(WriteBatch(drop_segments=[(1, 0), (1, 999)]))
        reopened(store)
        assert first_seqs(store, 10) == [10]
        store.apply(WriteBatch(segments=[segment(1, 0)]))
        assert [(s.first_seq, s.dead) for s in store.read(10, 0, 99, 999)] == [(0, None), (10, b"\x03")]
        assert [(s.first_seq, s.dead) for s in store.read(11, 0, 99, 999)] == [(0, None), (10, None)]
        assert [(s.first_seq, s.dead) for s in store.read(20, 0, 99, 999)] == [(0, b"\x03")]


class TestAcks:
    def test_a_bitmap_comes_back_with_its_segment_to_its_queue_alone(self, store: Store) -> None:
        dead = bytes(range(256))
        store.apply(WriteBatch(segments=[segment(1, 0), segment(1, 10)], acks=[partly(10, 1, 10, dead)]))
        reopened(store)
        assert [s.dead for s in store.read(10, 0, 99, 999)] == [None, dead]
        assert [s.dead for s in store.read(11, 0, 99, 999)] == [None, None]

    def test_the_last_word_counts_across_batches_and_within_one(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, 0), segment(1, 10)], acks=[partly(10, 1, 0)]))
        store.apply(WriteBatch(acks=[partly(10, 1, 0, b"\x07", 3), partly(10, 1, 10), partly(10, 1, 0, b"\x0f", 4)]))
        assert [s.dead for s in reopened(store).read(10, 0, 99, 999)] == [b"\x0f", b"\x03"]
        assert store.totals(10) == StoreTotals(20 - 6, 200 - 60)

    def test_an_empty_bitmap_is_not_done(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, 0)], acks=[partly(10, 1, 0, b"", 0)]))
        assert [s.dead for s in reopened(store).read(10, 0, 99, 999)] == [b""]
        assert store.totals(10) == StoreTotals(10, 100)

    def test_totals_are_what_is_left(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, n) for n in (0, 10, 20, 30)]))
        assert store.totals(10) == StoreTotals(40, 400)
        store.apply(WriteBatch(acks=[done(10, 1, 0), partly(10, 1, 20)]))
        reopened(store)
        assert store.totals(10) == StoreTotals(28, 280)
        assert store.totals(11) == StoreTotals(40, 400)
        assert first_seqs(store, 10) == [10, 20, 30]


class TestDeliveries:
    def test_they_are_replaced_and_forgotten_by_range(self, store: Store) -> None:
        rows = [DeliveryRow(10, seq, 1, 1000 + seq) for seq in range(10)]
        store.apply(WriteBatch(deliveries=[*rows, DeliveryRow(11, 5, 9, LARGEST)]))
        store.apply(WriteBatch(deliveries=[DeliveryRow(10, 3, 2, 7), DeliveryRow(10, 3, 4, 8)]))
        store.apply(WriteBatch(forget_deliveries=[(10, 0, 2), (10, 8, 99)]))
        reopened(store)
        assert store.deliveries(10, 0, LARGEST) == [DeliveryRow(10, 3, 4, 8), *rows[4:8]]
        assert store.deliveries(10, 4, 5) == rows[4:6]
        assert store.deliveries(11, 0, LARGEST) == [DeliveryRow(11, 5, 9, LARGEST)]

    def test_forgetting_comes_after_recording_in_one_batch(self, store: Store) -> None:
        store.apply(WriteBatch(deliveries=[DeliveryRow(10, 3, 1, 1)], forget_deliveries=[(10, 0, 9)]))
        assert store.deliveries(10, 0, 9) == []


class TestPurge:
    def test_a_queue_is_done_with_everything_before_the_sequence_and_others_are_not(self, store: Store) -> None:
        store.apply(
            WriteBatch(
                segments=[segment(1, n) for n in (0, 10, 20)],
                acks=[done(10, 1, 0), partly(10, 1, 10), partly(10, 1, 20), partly(11, 1, 10)],
                deliveries=[DeliveryRow(10, 19, 1, 1), DeliveryRow(10, 20, 1, 1), DeliveryRow(11, 19, 1, 1)],
            )
        )
        store.apply(WriteBatch(purge_queues=[(10, 20), (999, 20)]))
        reopened(store)
        assert [(s.first_seq, s.dead) for s in store.read(10, 0, 99, 999)] == [(20, b"\x03")]
        assert store.totals(10) == StoreTotals(8, 80)
        assert store.deliveries(10, 0, 99) == [DeliveryRow(10, 20, 1, 1)]
        assert first_seqs(store, 11) == [0, 10, 20]
        assert store.deliveries(11, 0, 99) == [DeliveryRow(11, 19, 1, 1)]


class TestCollection:
    def test_what_no_queue_needs_is_removed_and_the_rest_is_counted(self, store: Store) -> None:
        store.apply(
            WriteBatch(
                segments=[*(segment(1, n) for n in (0, 10, 20, 30)), segment(2, 0)],
                acks=[done(10, 1, 0), done(11, 1, 0), done(10, 1, 10), partly(11, 1, 20), done(20, 2, 0)],
            )
        )
        assert store.apply(WriteBatch(collect_streams=[1])) == {1: {20: 2, 30: 2}}
        assert store.shares() == {1: {20: 2, 30: 2}}
        reopened(store)
        assert store.shares() == {1: {20: 2, 30: 2}}
        assert first_seqs(store, 10) == [20, 30]
        assert first_seqs(store, 11) == [10, 20, 30]
        late = store.apply(WriteBatch(put_queues=[queue(12, 1)], collect_streams=[1]))
        assert late == {1: {10: 2, 20: 3, 30: 3}}
        assert first_seqs(store, 12) == [10, 20, 30]

    def test_acks_of_removed_segments_go_with_them(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, 0)], acks=[done(10, 1, 0), done(11, 1, 0)], collect_streams=[1]))
        store.apply(WriteBatch(segments=[segment(1, 0)]))
        assert [s.dead for s in store.read(10, 0, 99, 999)] == [None]

    def test_a_purge_counts_as_done(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, n) for n in (0, 10)]))
        assert store.apply(WriteBatch(purge_queues=[(10, 10)], collect_streams=[1])) == {1: {10: 2}}
        assert store.apply(WriteBatch(purge_queues=[(11, 10)], collect_streams=[1])) == {1: {10: 2}}
        store.apply(WriteBatch(put_queues=[queue(12, 1)]))
        assert first_seqs(store, 12) == [10]

    def test_a_stream_without_queues_keeps_nothing(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, 0)]))
        assert store.apply(WriteBatch(drop_queues=[10, 11], collect_streams=[1])) == {1: {}}
        store.apply(WriteBatch(put_queues=[queue(12, 1)]))
        assert first_seqs(store, 12) == []

    def test_only_the_streams_asked_for_are_collected(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, 0), segment(2, 0)], acks=[done(20, 2, 0)]))
        assert store.apply(WriteBatch(collect_streams=[1])) == {1: {0: 2}}
        store.apply(WriteBatch(put_queues=[queue(21, 2)]))
        assert first_seqs(store, 21) == [0]
        assert store.apply(WriteBatch(collect_streams=[1, 2])) == {1: {0: 2}, 2: {}}


class TestDrops:
    def test_a_dropped_queue_leaves_nothing_behind(self, store: Store) -> None:
        store.apply(
            WriteBatch(
                segments=[segment(1, 0)],
                acks=[partly(10, 1, 0), partly(11, 1, 0)],
                deliveries=[DeliveryRow(10, 1, 1, 1), DeliveryRow(11, 1, 1, 1)],
            )
        )
        store.apply(WriteBatch(drop_queues=[10]))
        store.close()
        assert [q.id for q in store.open()[1]] == [11, 20]
        store.apply(WriteBatch(put_queues=[queue(10, 1)]))
        assert [s.dead for s in store.read(10, 0, 99, 999)] == [None]
        assert store.deliveries(10, 0, 99) == []
        assert [s.dead for s in store.read(11, 0, 99, 999)] == [b"\x03"]
        assert store.deliveries(11, 0, 99) == [DeliveryRow(11, 1, 1, 1)]

    def test_a_dropped_stream_leaves_nothing_behind(self, store: Store) -> None:
        store.apply(
            WriteBatch(
                segments=[segment(1, 0), segment(2, 0)],
                acks=[partly(10, 1, 0), partly(20, 2, 0)],
                deliveries=[DeliveryRow(10, 1, 1, 1), DeliveryRow(20, 1, 1, 1)],
                dedups=[DedupRow(1, 0, 99, b"k"), DedupRow(2, 0, 99, b"k")],
            )
        )
        store.apply(WriteBatch(drop_streams=[1]))
        store.close()
        streams, queues = store.open()
        assert ([s.id for s in streams], [q.id for q in queues]) == ([2], [20])
        assert store.dedups(0) == [DedupRow(2, 0, 99, b"k")]
        store.apply(WriteBatch(put_streams=[StreamRecord(1, "again", b"")], put_queues=[queue(10, 1)]))
        assert first_seqs(store, 10) == []
        assert store.deliveries(10, 0, 99) == []
        assert [s.dead for s in store.read(20, 0, 99, 999)] == [b"\x03"]
        assert store.deliveries(20, 0, 99) == [DeliveryRow(20, 1, 1, 1)]

    def test_a_stream_shrinks_from_its_oldest_segment_on(self, store: Store) -> None:
        segments = [segment(1, first_seq) for first_seq in (0, 2, 4)]
        store.apply(WriteBatch(segments=[*segments, segment(2, 0)], acks=[partly(10, 1, 0), partly(20, 2, 0)]))
        store.apply(WriteBatch(shrink_streams=[(1, 2)]))
        assert first_seqs(store, 10) == [4]
        assert first_seqs(store, 11) == [4]
        store.apply(WriteBatch(segments=[segment(1, 0)], shrink_streams=[(2, 0)]))
        assert [s.dead for s in store.read(10, 0, 99, 999)] == [None, None]
        assert [s.dead for s in store.read(20, 0, 99, 999)] == [b"\x03"]

    def test_a_drop_comes_after_what_the_batch_adds(self, store: Store) -> None:
        before = contents(store)
        store.apply(
            WriteBatch(
                put_streams=[StreamRecord(3, "three", b"")],
                put_queues=[queue(30, 3), queue(12, 1)],
                segments=[segment(3, 0), segment(1, 0)],
                acks=[done(30, 3, 0), done(10, 1, 0)],
                dedups=[DedupRow(3, 0, 99, b"k")],
                deliveries=[DeliveryRow(30, 0, 1, 1)],
                drop_segments=[(1, 0)],
                drop_queues=[12],
                drop_streams=[3],
            )
        )
        assert contents(store) == before


class TestDedups:
    def test_unexpired_ones_come_back_oldest_first(self, store: Store) -> None:
        rows = [DedupRow(2, 0, 100, b"c"), DedupRow(1, 9, 50, b"b"), DedupRow(1, 2, 300, b"a")]
        store.apply(WriteBatch(dedups=rows))
        reopened(store)
        assert store.dedups(0) == [rows[2], rows[1], rows[0]]
        assert store.dedups(49) == [rows[2], rows[1], rows[0]]
        assert store.dedups(50) == [rows[2], rows[0]]
        assert store.dedups(300) == []

    def test_they_outlive_their_segment_and_are_replaced_by_key(self, store: Store) -> None:
        store.apply(WriteBatch(segments=[segment(1, 0)], dedups=[DedupRow(1, 0, 50, b"old")]))
        store.apply(WriteBatch(drop_segments=[(1, 0)], dedups=[DedupRow(1, 0, 60, b"new")]))
        assert reopened(store).dedups(0) == [DedupRow(1, 0, 60, b"new")]

    def test_the_horizon_removes_those_that_expired_by_it(self, store: Store) -> None:
        store.apply(WriteBatch(dedups=[DedupRow(1, n, n, b"k") for n in (49, 50, 51)]))
        store.apply(WriteBatch(dedup_horizon_ms=0))
        assert len(store.dedups(0)) == 3
        store.apply(WriteBatch(dedup_horizon_ms=50))
        assert reopened(store).dedups(0) == [DedupRow(1, 51, 51, b"k")]


class TestDamaged:
    def test_records_set_aside_come_back_in_the_order_they_were_found(self, store: Store) -> None:
        rows = [DamagedRow(1, 10, 12, "a sentence, ünïcode", b"\x00\xff", 5), DamagedRow(1, 0, 3, "", b"", 6)]
        store.apply(WriteBatch(damaged=rows[:1]))
        store.apply(WriteBatch(damaged=[*rows[1:], rows[0]], drop_streams=[1]))
        assert reopened(store).damaged() == [*rows, rows[0]]


class TestAtomicity:
    @pytest.mark.parametrize(
        "poison",
        [
            WriteBatch(segments=[segment(1, 0)]),
            WriteBatch(segments=[segment(1, 50), segment(1, 50)]),
            WriteBatch(segments=[segment(1, n, 1) for n in range(100, 200)] + [segment(1, 0)]),
            WriteBatch(acks=[done(2**64, 1, 0)]),
            WriteBatch(put_streams=[StreamRecord(9, "\ud800", b"")]),
            WriteBatch(dedup_horizon_ms=2**64),
        ],
        ids=["kept before", "twice", "in bulk", "integer too large", "no unicode", "at the very end"],
    )
    def test_a_refused_batch_leaves_nothing_and_the_store_goes_on(self, store: Store, poison: WriteBatch) -> None:
        store.apply(
            WriteBatch(
                segments=[segment(1, 0), segment(1, 10)],
                acks=[partly(10, 1, 0)],
                deliveries=[DeliveryRow(10, 1, 1, 1)],
                dedups=[DedupRow(1, 0, 99, b"k")],
            )
        )
        before = contents(store)
        refused = WriteBatch(
            put_streams=[StreamRecord(3, "three", b""), *poison.put_streams],
            put_queues=[queue(30, 3), queue(10, 1, 10)],
            seq_limits={1: 999},
            segments=[segment(1, 20), segment(3, 0), *poison.segments],
            dedups=[DedupRow(1, 20, 99, b"k")],
            deliveries=[DeliveryRow(10, 1, 7, 7)],
            acks=[done(10, 1, 0), *poison.acks],
            forget_deliveries=[(10, 0, 99)],
            drop_segments=[(1, 10)],
            damaged=[DamagedRow(1, 0, 0, "r", b"", 1)],
            purge_queues=[(11, 10)],
            drop_queues=[11],
            drop_streams=[2],
            collect_streams=[1],
            dedup_horizon_ms=poison.dedup_horizon_ms or 99,
        )
        with pytest.raises(StoreFailed, match="nothing of it was saved"):
            store.apply(refused)
        assert first_seqs(store, 10) == [0, 10]
        store.apply(WriteBatch(segments=[segment(1, 30)]))
        assert first_seqs(store, 11) == [0, 10, 30]
        store.apply(WriteBatch(drop_segments=[(1, 30)]))
        assert contents(store) == before


class TestThreads:
    def test_reads_run_beside_writes_from_changing_threads(self, store: Store) -> None:
        def write(n: int) -> None:
            acks = [done(10, 1, n - 1)] if n else []
            store.apply(WriteBatch(segments=[segment(1, n, 1)], acks=acks))

        def read(_: int) -> None:
            assert len(first_seqs(store, 10)) <= 1
            seqs = first_seqs(store, 11)
            assert seqs == list(range(len(seqs)))

        with ThreadPoolExecutor(4) as pool:
            reads = [pool.submit(read, n) for n in range(50)]
            for n in range(100):
                pool.submit(write, n).result()
            for future in reads:
                future.result()
        assert first_seqs(store, 11) == list(range(100))


class TestOpening:
    def test_a_closed_store_fails_with_a_sentence_and_can_be_opened_again(self, new_store: NewStore) -> None:
        store = new_store()
        for _ in range(2):
            with pytest.raises(StoreFailed, match="not open"):
                store.apply(WriteBatch())
            with pytest.raises(StoreFailed, match="not open"):
                store.totals(1)
            store.open()
            store.apply(WriteBatch())
            store.close()
            store.close()

    def test_a_newer_version_is_refused(self, backend: str, place: str, new_store: NewStore) -> None:
        store = new_store()
        store.open()
        store.close()
        if backend == "sqlite":
            connection = sqlite3.connect(place)
            connection.execute("PRAGMA user_version = 99")
            connection.close()
        else:
            with psycopg.connect(place) as session:
                session.execute("UPDATE penstock_queue.schema_version SET version = 99")
        with pytest.raises(FailedPrecondition, match="version 99"):
            store.open()


HOLDER = """
import signal, sys
from penstock.engine.store.postgres import PostgresStore
from penstock.engine.store.sqlite import SqliteStore
backend, place = sys.argv[1:]
store = PostgresStore(place) if backend == "postgres" else SqliteStore(place)
store.open()
print("open", flush=True)
signal.pause()
"""


class TestLock:
    @pytest.fixture
    def holder(self, backend: str, place: str) -> Iterator["subprocess.Popen[str]"]:
        """Another process that has the store open."""
        argv = [sys.executable, "-c", HOLDER, backend, place]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield process
            process.kill()

    def test_a_second_store_in_the_same_process_is_refused(self, new_store: NewStore) -> None:
        first = new_store()
        first.open()
        with pytest.raises(StoreLocked):
            new_store().open()
        first.apply(WriteBatch(put_streams=[StreamRecord(1, "still mine", b"")]))
        first.close()
        assert new_store().open()[0] == [StreamRecord(1, "still mine", b"")]

    def test_another_process_keeps_it_until_it_is_killed(
        self, backend: str, place: str, holder: "subprocess.Popen[str]", new_store: NewStore
    ) -> None:
        store = new_store()
        with pytest.raises(StoreLocked) as refusal:
            store.open()
        if backend == "sqlite":
            assert str(holder.pid) in refusal.value.message
            assert place in refusal.value.message
        else:
            assert "penstock_queue" in refusal.value.message
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        store.open()

"""The SQLite store against plain Python: the same batches leave the same things to read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.errors import StoreFailed
from penstock.engine.store.port import (
    AckRow,
    DedupRow,
    DeliveryRow,
    QueueRecord,
    SegmentRow,
    Shares,
    StoredSegment,
    StoreTotals,
    StreamRecord,
    WriteBatch,
)
from penstock.engine.store.sqlite import SqliteStore
from tests.rigs.search import examples

COUNT = 4
LAST = 31
STREAM_OF_QUEUE = {10: 1, 11: 1, 12: 1, 20: 2}
STREAMS = [StreamRecord(id, f"stream {id}", b"") for id in (1, 2)]
QUEUES = [QueueRecord(id, stream, f"queue {id}", b"") for id, stream in STREAM_OF_QUEUE.items()]


@dataclass
class Model:
    """What the port's sentences say, over dictionaries."""

    starts: dict[int, int] = field(default_factory=lambda: dict.fromkeys(STREAM_OF_QUEUE, 0))
    segments: dict[tuple[int, int], SegmentRow] = field(default_factory=dict)
    acks: dict[tuple[int, int], AckRow] = field(default_factory=dict)
    deliveries: dict[tuple[int, int], DeliveryRow] = field(default_factory=dict)
    dedups: dict[tuple[int, int], DedupRow] = field(default_factory=dict)

    def accepts(self, batch: WriteBatch) -> bool:
        keys = [(row.stream_id, row.first_seq) for row in batch.segments]
        return len(keys) == len(set(keys)) and self.segments.keys().isdisjoint(keys)

    def apply(self, batch: WriteBatch) -> Shares:
        for queue in batch.put_queues:
            self.starts[queue.id] = max(self.starts.get(queue.id, 0), queue.start_seq)
        self.segments |= {(row.stream_id, row.first_seq): row for row in batch.segments}
        self.dedups |= {(row.stream_id, row.first_seq): row for row in batch.dedups}
        self.deliveries |= {(row.queue_id, row.seq): row for row in batch.deliveries}
        self.acks |= {(row.queue_id, row.first_seq): row for row in batch.acks}
        for queue_id, first, last in batch.forget_deliveries:
            self.forget(queue_id, first, last, acks=False)
        for queue_id, seq in batch.purge_queues:
            if queue_id in self.starts:
                self.starts[queue_id] = max(self.starts[queue_id], seq)
            self.forget(queue_id, 0, seq - 1, acks=True)
        for place in batch.drop_segments:
            self.segments.pop(place, None)
            self.drop_acks(place)
        for queue_id in batch.drop_queues:
            self.starts.pop(queue_id, None)
            self.forget(queue_id, 0, LAST, acks=True)
        shares = {stream_id: self.collect(stream_id) for stream_id in batch.collect_streams}
        if batch.dedup_horizon_ms > 0:
            horizon = batch.dedup_horizon_ms
            self.dedups = {key: row for key, row in self.dedups.items() if row.expires_ms > horizon}
        return shares

    def forget(self, queue_id: int, first: int, last: int, *, acks: bool) -> None:
        def gone(key: tuple[int, int]) -> bool:
            return key[0] == queue_id and first <= key[1] <= last

        self.deliveries = {key: row for key, row in self.deliveries.items() if not gone(key)}
        if acks:
            self.acks = {key: row for key, row in self.acks.items() if not gone(key)}

    def drop_acks(self, place: tuple[int, int]) -> None:
        self.acks = {k: row for k, row in self.acks.items() if (row.stream_id, row.first_seq) != place}

    def collect(self, stream_id: int) -> dict[int, int]:
        for place in [place for place in self.segments if place[0] == stream_id]:
            if self.needing(place) == 0:
                del self.segments[place]
        self.acks = {
            k: a for k, a in self.acks.items() if a.stream_id != stream_id or (stream_id, a.first_seq) in self.segments
        }
        return self.shares_of(stream_id)

    def shares_of(self, stream_id: int) -> dict[int, int]:
        counts = {first: self.needing((stream, first)) for stream, first in self.segments if stream == stream_id}
        return {first: count for first, count in counts.items() if count >= 2}

    def needing(self, place: tuple[int, int]) -> int:
        return sum(self.needs(q, place) for q, stream in STREAM_OF_QUEUE.items() if stream == place[0])

    def needs(self, queue_id: int, place: tuple[int, int]) -> bool:
        ack = self.acks.get((queue_id, place[1]))
        return queue_id in self.starts and self.starts[queue_id] <= place[1] and (ack is None or ack.dead is not None)

    def waiting(self, queue_id: int) -> Iterator[tuple[SegmentRow, AckRow | None]]:
        for place, row in sorted(self.segments.items(), key=lambda item: item[0]):
            if place[0] == STREAM_OF_QUEUE[queue_id] and self.needs(queue_id, place):
                yield row, self.acks.get((queue_id, place[1]))

    def totals(self, queue_id: int) -> StoreTotals:
        messages = size_bytes = 0
        for row, ack in self.waiting(queue_id):
            messages += row.count - (ack.dead_count if ack else 0)
            size_bytes += row.size_bytes - (ack.dead_bytes if ack else 0)
        return StoreTotals(messages, size_bytes)

    def read(self, queue_id: int, from_seq: int, max_messages: int, max_bytes: int) -> list[StoredSegment]:
        taken: list[StoredSegment] = []
        for row, ack in self.waiting(queue_id):
            full = sum(s.count for s in taken) >= max_messages or sum(s.size_bytes for s in taken) >= max_bytes
            if row.first_seq < from_seq or (taken and full):
                continue
            payload, dead = b"".join(row.frames), ack.dead if ack else None
            taken.append(StoredSegment(row.first_seq, row.count, row.size_bytes, payload, dead))
        return taken


queue_ids = st.sampled_from(list(STREAM_OF_QUEUE))
stream_ids = st.sampled_from([1, 2])
boundaries = st.integers(0, 7).map(lambda n: n * COUNT)
seqs = st.integers(0, LAST)
segments = st.builds(
    SegmentRow, stream_ids, boundaries, st.just(COUNT), st.integers(0, 99), st.lists(st.binary(max_size=9), max_size=3)
)
partial = st.builds(lambda n, b: (bytes([(1 << n) - 1]), n, b), st.integers(0, COUNT - 1), st.integers(0, 5))
acks = st.builds(
    lambda queue, first, dead: AckRow(queue, STREAM_OF_QUEUE[queue], first, *dead),
    queue_ids,
    boundaries,
    st.one_of(st.just((None, COUNT, 9)), partial),
)
deliveries = st.builds(DeliveryRow, queue_ids, seqs, st.integers(1, 9), st.integers(0, 99))
dedups = st.builds(DedupRow, stream_ids, boundaries, st.integers(1, 50), st.binary(max_size=4))
batches = st.builds(
    WriteBatch,
    put_queues=st.lists(st.sampled_from(QUEUES), max_size=1),
    segments=st.lists(segments, max_size=4),
    acks=st.lists(acks, max_size=6),
    deliveries=st.lists(deliveries, max_size=3),
    dedups=st.lists(dedups, max_size=2),
    forget_deliveries=st.lists(st.tuples(queue_ids, seqs, seqs), max_size=2),
    drop_segments=st.lists(st.tuples(stream_ids, boundaries), max_size=2),
    purge_queues=st.lists(st.tuples(queue_ids, boundaries), max_size=1),
    drop_queues=st.lists(queue_ids, max_size=1),
    collect_streams=st.lists(stream_ids, max_size=2, unique=True),
    dedup_horizon_ms=st.integers(0, 30),
)
limits = st.tuples(seqs, boundaries, st.integers(0, 300))


def by_seq(row: DeliveryRow) -> int:
    return row.seq


@contextmanager
def open_store() -> Iterator[SqliteStore]:
    with TemporaryDirectory() as directory:
        store = SqliteStore(Path(directory) / "q.db", durability="survives-process-crash-only")
        store.open()
        store.apply(WriteBatch(put_streams=STREAMS, put_queues=QUEUES))
        try:
            yield store
        finally:
            store.close()


@settings(max_examples=examples(60))
@given(steps=st.lists(st.tuples(batches, limits), min_size=1, max_size=12))
def test_the_same_batches_leave_the_same_things(steps: list[tuple[WriteBatch, tuple[int, int, int]]]) -> None:
    model = Model()
    with open_store() as store:
        for batch, limit in steps:
            if model.accepts(batch):
                assert store.apply(batch) == model.apply(batch)
            else:
                with pytest.raises(StoreFailed):
                    store.apply(batch)
            for queue_id in STREAM_OF_QUEUE:
                assert store.read(queue_id, *limit) == model.read(queue_id, *limit)
                assert store.totals(queue_id) == model.totals(queue_id)
                rows = sorted((row for row in model.deliveries.values() if row.queue_id == queue_id), key=by_seq)
                assert store.deliveries(queue_id, 0, 99) == rows
            assert store.dedups(0) == [row for _, row in sorted(model.dedups.items(), key=lambda item: item[0])]
            shares = {stream_id: counts for stream_id in (1, 2) if (counts := model.shares_of(stream_id))}
            assert {stream_id: counts for stream_id, counts in store.shares().items() if counts} == shares

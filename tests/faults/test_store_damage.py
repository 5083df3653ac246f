"""A SQLite store after kill -9, a cut-off log, damaged bytes and a full disk."""

import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.domain.message import Message
from penstock.engine.errors import StoreFailed
from penstock.engine.store.port import (
    AckRow,
    DedupRow,
    DeliveryRow,
    QueueRecord,
    SegmentRow,
    StreamRecord,
    WriteBatch,
)
from penstock.engine.store.segment_codec import Damage, decode_segment, encode_message, encode_segment
from penstock.engine.store.sqlite import SqliteStore

UNLIMITED = 1 << 40
PAGE_BYTES = 4096
REPOSITORY = Path(__file__).parents[2]

WRITER = """
import sys
from tests.faults.test_store_damage import step
from penstock.engine.store.sqlite import SqliteStore
path, durability, start = sys.argv[1:]
store = SqliteStore(path, durability=durability)
store.open()
n = int(start)
while True:
    store.apply(step(n))
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
    n += 1
"""


def catalog() -> WriteBatch:
    return WriteBatch(
        put_streams=[StreamRecord(1, "one", b""), StreamRecord(2, "two", b"")],
        put_queues=[QueueRecord(10, 1, "ten", b""), QueueRecord(20, 2, "twenty", b"")],
    )


def message(n: int, size_bytes: int = 2000) -> Message:
    return Message(id=f"m{n}", body=b"%d " % n * (size_bytes // 4), sent_ms=n, size_bytes=size_bytes)


def segment(stream_id: int, first_seq: int, size_bytes: int = 2000) -> SegmentRow:
    records = [encode_message(message(first_seq + k, size_bytes)) for k in range(2)]
    return SegmentRow(stream_id, first_seq, 2, 2 * size_bytes, encode_segment(stream_id, first_seq, records))


def step(n: int) -> WriteBatch:
    """The nth batch, which leaves a trace of itself in every table."""
    return WriteBatch(
        seq_limits={1: 2 * n + 2},
        segments=[segment(1, 2 * n), segment(2, 2 * n)],
        dedups=[DedupRow(1, 2 * n, UNLIMITED, b"%d" % n)],
        deliveries=[DeliveryRow(10, 2 * n, 1, n)],
        acks=[AckRow(20, 2, 2 * n, b"%d" % n, 1, 1)],
    )


def whole_steps(store: SqliteStore, streams: list[StreamRecord]) -> int:
    """How many batches a store holds, after making sure that each of them is whole."""
    ones, twos = (store.read(queue_id, 0, UNLIMITED, UNLIMITED) for queue_id in (10, 20))
    steps = len(ones)
    assert (
        [stored.first_seq for stored in ones] == [stored.first_seq for stored in twos] == list(range(0, 2 * steps, 2))
    )
    for stored in ones:
        found = decode_segment(1, stored.first_seq, stored.count, stored.payload)
        assert found == [message(stored.first_seq), message(stored.first_seq + 1)]
    assert [stored.dead for stored in twos] == [b"%d" % n for n in range(steps)]
    assert [row.keys for row in store.dedups(0)] == [b"%d" % n for n in range(steps)]
    assert [row.first_received_ms for row in store.deliveries(10, 0, UNLIMITED)] == list(range(steps))
    assert streams[0].seq_limit == 2 * steps
    return steps


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    opened.open()
    opened.apply(catalog())
    yield opened
    opened.close()


class TestKilled:
    @pytest.mark.parametrize("durability", ["fsync", "survives-process-crash-only"])
    def test_every_acknowledged_batch_is_there_and_every_other_is_whole(self, path: Path, durability: str) -> None:
        store = SqliteStore(path, durability=durability)
        store.open()
        store.apply(catalog())
        store.close()
        steps = 0
        for rounds in (1, 40, 300):
            acknowledged = self._write_until_killed(path, durability, steps, rounds)
            streams, _ = store.open()
            steps = whole_steps(store, streams)
            store.close()
            assert acknowledged <= steps <= acknowledged + 1

    def _write_until_killed(self, path: Path, durability: str, start: int, rounds: int) -> int:
        argv = [sys.executable, "-c", WRITER, str(path), durability, str(start)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
            assert process.stdout is not None
            for _ in range(rounds):
                process.stdout.readline()
            process.kill()
            rest = process.stdout.read().splitlines()
        return start + rounds + len([line for line in rest if line])


class TestPowerCut:
    def test_a_log_cut_off_anywhere_leaves_whole_batches(self, store: SqliteStore, path: Path, tmp_path: Path) -> None:
        for n in range(8):
            store.apply(step(n))
        log = Path(f"{path}-wal").read_bytes()
        kept: list[int] = []
        for cut in [*range(0, len(log), len(log) // 23), len(log)]:
            copy = tmp_path / f"cut{cut}" / "q.db"
            copy.parent.mkdir()
            shutil.copy(path, copy)
            Path(f"{copy}-wal").write_bytes(log[:cut])
            survivor = SqliteStore(copy)
            streams, _ = survivor.open()
            # A log cut off before its first commit is a database that was never used.
            kept.append(whole_steps(survivor, streams) if streams else 0)
            survivor.close()
        assert kept == sorted(kept)
        assert (kept[0], kept[-1]) == (0, 8)
        assert len(set(kept)) > 5


class TestDamagedBytes:
    def test_a_flipped_bit_in_the_table_costs_one_message(self, store: SqliteStore, path: Path) -> None:
        store.apply(WriteBatch(segments=[segment(1, n) for n in (0, 2, 4)]))
        with sqlite3.connect(path) as connection:
            (payload,) = connection.execute("SELECT payload FROM segments WHERE first_seq = 2").fetchone()
            damaged = payload[:-1] + bytes([payload[-1] ^ 1])
            connection.execute("UPDATE segments SET payload = ? WHERE first_seq = 2", (damaged,))
        connection.close()
        found = self._decoded(store)
        assert [each for each in found if not isinstance(each, Damage)] == [message(n) for n in (0, 1, 2, 4, 5)]
        assert isinstance(found[3], Damage)

    @pytest.mark.parametrize("value", [b"", b"\x00" * 5000, "text", 7])
    def test_a_payload_replaced_by_something_else_costs_its_segment(
        self, store: SqliteStore, path: Path, value: object
    ) -> None:
        store.apply(WriteBatch(segments=[segment(1, n) for n in (0, 2, 4)]))
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE segments SET payload = ? WHERE first_seq = 2", (value,))
        connection.close()
        found = self._decoded(store)
        assert [isinstance(each, Damage) for each in found] == [False, False, True, True, False, False]

    @pytest.mark.parametrize("where", ["leaf", "overflow"])
    def test_a_damaged_page_costs_only_the_segments_on_it(self, store: SqliteStore, path: Path, where: str) -> None:
        firsts = list(range(0, 40, 2))
        store.apply(WriteBatch(segments=[segment(1, n, 20_000) for n in firsts], acks=[AckRow(10, 1, 4, None, 2, 1)]))
        store.close()
        image = bytearray(path.read_bytes())
        if where == "leaf":
            page = image.index(struct.pack("<4sQQ", b"PSG1", 1, 20)) // PAGE_BYTES
            image[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = b"\xff" * PAGE_BYTES
        else:
            page = image.index(b"20 20 20 20 ") // PAGE_BYTES + 1
            image[page * PAGE_BYTES : page * PAGE_BYTES + 4] = b"\xff" * 4
        path.write_bytes(image)
        store.open()
        stored = store.read(10, 0, UNLIMITED, UNLIMITED)
        assert [each.first_seq for each in stored] == [n for n in firsts if n != 4]
        assert all(each.count == 2 and each.size_bytes == 40_000 for each in stored)
        lost = {each.first_seq for each in stored if not each.payload}
        assert 20 in lost
        assert len(lost) <= 9
        for each in stored:
            found = decode_segment(1, each.first_seq, each.count, each.payload)
            if each.first_seq in lost:
                assert all(isinstance(record, Damage) for record in found)
            else:
                assert found == [message(each.first_seq, 20_000), message(each.first_seq + 1, 20_000)]
        store.apply(WriteBatch(segments=[segment(1, 100)]))
        assert store.read(10, 100, 1, 1)[0].payload == b"".join(segment(1, 100).frames)

    def _decoded(self, store: SqliteStore) -> list[Message | Damage]:
        stored = store.read(10, 0, UNLIMITED, UNLIMITED)
        return [found for each in stored for found in decode_segment(1, each.first_seq, each.count, each.payload)]


class TestDisk:
    def test_a_full_disk_is_told_and_nothing_of_the_batch_is_kept(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connections: list[sqlite3.Connection] = []
        connect = sqlite3.connect

        def remembering(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connections.append(connect(*args, **kwargs))
            return connections[-1]

        monkeypatch.setattr(sqlite3, "connect", remembering)
        store = SqliteStore(path)
        store.open()
        store.apply(catalog())
        kept = 5
        for n in range(kept):
            store.apply(step(n))
        connections[0].execute("PRAGMA max_page_count = 1")
        with pytest.raises(StoreFailed, match=r"disk of .* is full.* nothing of the batch was saved"):
            store.apply(step(kept))
        assert [each.first_seq for each in store.read(20, 0, UNLIMITED, UNLIMITED)] == list(range(0, 2 * kept, 2))
        connections[0].execute("PRAGMA max_page_count = 1000000")
        store.apply(step(kept))
        store.close()
        streams, _ = store.open()
        assert whole_steps(store, streams) == kept + 1
        store.close()

    @pytest.mark.parametrize("missing", ["nowhere/q.db", "a file/q.db"])
    def test_a_missing_directory_is_told(self, tmp_path: Path, missing: str) -> None:
        (tmp_path / "a file").touch()
        with pytest.raises(InvalidArgument, match="not a directory"):
            SqliteStore(tmp_path / missing).open()

    def test_a_path_that_cannot_be_a_database_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "directory").mkdir()
        with pytest.raises(StoreFailed, match="cannot be opened"):
            SqliteStore(tmp_path / "directory").open()
        (tmp_path / "text").write_text("something else entirely, long enough to be taken for a header" * 20)
        store = SqliteStore(tmp_path / "text")
        for _ in range(2):
            with pytest.raises(StoreFailed, match="cannot be opened"):
                store.open()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_read_only_directory_is_told(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(StoreFailed, match="cannot be opened"):
            SqliteStore(tmp_path / "q.db").open()

    def test_an_unknown_durability_is_refused(self, path: Path) -> None:
        with pytest.raises(InvalidArgument, match="fsync or survives-process-crash-only"):
            SqliteStore(path, durability="maybe")

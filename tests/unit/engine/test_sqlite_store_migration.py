"""A database that an older Penstock made is brought up to date with everything in it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.engine.errors import StoreFailed
from penstock.engine.store import sqlite_statements
from penstock.engine.store.port import SegmentRow, WriteBatch
from penstock.engine.store.sqlite import SqliteStore


def make_old(path: Path, version: int) -> None:
    """A database as of a version, with a stream, a queue, two segments and an ack."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statements in sqlite_statements._MIGRATIONS[:version]:
            for statement in statements:
                connection.execute(statement)
        connection.execute("INSERT INTO streams VALUES (1, 'orders', x'00', 100)")
        connection.execute("INSERT INTO queues VALUES (7, 1, 'orders', x'00', 0)")
        for first_seq, payload in ((10, b"later"), (0, b"first")):
            connection.execute("INSERT INTO segments VALUES (1, ?, 2, 20, ?)", (first_seq, payload))
        connection.execute("INSERT INTO acks VALUES (7, 1, 0, x'01', 1, 10)")


@pytest.mark.parametrize("version", range(1, sqlite_statements.VERSION + 1))
def test_what_an_older_version_held_is_there(tmp_path: Path, version: int) -> None:
    path = tmp_path / "queue.db"
    make_old(path, version)
    store = SqliteStore(path)
    streams, queues = store.open()
    try:
        assert [(stream.id, stream.name) for stream in streams] == [(1, "orders")]
        assert [(queue.id, queue.name) for queue in queues] == [(7, "orders")]
        found = store.read(7, 0, 100, 1000)
        assert [(each.first_seq, each.count, each.payload, each.dead) for each in found] == [
            (0, 2, b"first", b"\x01"),
            (10, 2, b"later", None),
        ]
        totals = store.totals(7)
        assert (totals.messages, totals.size_bytes) == (3, 30)
        with pytest.raises(StoreFailed, match="a segment already exists"):
            store.apply(WriteBatch(segments=[SegmentRow(1, 10, 1, 5, [b"other"])]))
        store.apply(WriteBatch(drop_segments=[(1, 0)]))
        assert [each.first_seq for each in store.read(7, 0, 100, 1000)] == [10]
    finally:
        store.close()

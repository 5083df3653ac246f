"""SQLite's log is copied into the database beside the writer, and never grows without end."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.store import checkpoints as module
from penstock.engine.store.checkpoints import Checkpoints

KIB = 1024
ROW = b"x" * 16 * KIB


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DUE_BYTES", 256 * KIB)
    monkeypatch.setattr(module, "_REST_BYTES", 128 * KIB)
    monkeypatch.setattr(module, "_MOST_BYTES", 2048 * KIB)


class Written:
    """A database that is written to, with its checkpoints."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = Path(f"{path}-wal")
        self.writer = self.connect()
        self.writer.execute("PRAGMA wal_autocheckpoint = 0")
        self.writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
        self.checkpoints = Checkpoints(self.connect)

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    def write(self, rows: int) -> None:
        for _ in range(rows):
            self.writer.execute("INSERT INTO t (body) VALUES (?)", (ROW,))
            self.checkpoints.wrote(self.writer, len(ROW) + 2 * 4096)

    def let_copy_end(self) -> None:
        copying = self.checkpoints._copying
        if copying is not None:
            copying.result(30)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    database = Written(tmp_path / "db")
    yield database
    database.checkpoints.close()
    database.writer.close()


def test_the_log_begins_anew_and_everything_is_in_the_database(written: Written) -> None:
    for _ in range(200):
        written.write(5)
        written.let_copy_end()
    assert written.log.stat().st_size < 1024 * KIB, "1,000 rows of 16 KiB went through it"
    assert written.writer.execute("SELECT count(*), sum(length(body)) FROM t").fetchone() == (1000, 1000 * len(ROW))
    assert written.writer.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_reader_holds_the_log_up_but_not_the_writer_and_it_begins_anew_afterwards(written: Written) -> None:
    written.write(1)
    reader = written.connect()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM t").fetchone()
    written.write(300)
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (1,)
    held = written.log.stat().st_size
    assert held > 300 * len(ROW), "nothing that a reader needs is overwritten"
    reader.execute("COMMIT")
    for _ in range(60):
        written.write(5)
        written.let_copy_end()
    assert written.log.stat().st_size < held + 3000 * KIB
    assert written.writer.execute("SELECT count(*) FROM t").fetchone() == (601,)


def test_a_copy_that_fails_is_told_and_costs_nothing(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> sqlite3.Connection:
        raise sqlite3.OperationalError("no more files")

    written.checkpoints = Checkpoints(refuse)
    written.write(20)
    written.let_copy_end()
    assert "was not copied into its database: no more files" in caplog.text
    assert written.writer.execute("SELECT count(*) FROM t").fetchone() == (20,)

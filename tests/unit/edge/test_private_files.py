"""What a data directory holds is for its owner alone, whatever the umask was."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.edge.private_files import create_private, private_directory


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_directory_is_for_its_owner(tmp_path: Path) -> None:
    private_directory(tmp_path / "parent" / "data")
    assert mode(tmp_path / "parent" / "data") == 0o700
    assert mode(tmp_path / "parent") == 0o777


def test_a_directory_of_ours_that_was_open_is_closed_with_its_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(0o755)
    for name in ("jobs.db", "jobs.db-wal", "sqs.db", "dispatch.secret", "notes.txt"):
        (data / name).touch(0o644)
    private_directory(data)
    assert mode(data) == 0o700
    assert {path.name: mode(path) for path in data.iterdir()} == {
        "jobs.db": 0o600,
        "jobs.db-wal": 0o600,
        "sqs.db": 0o600,
        "dispatch.secret": 0o600,
        "notes.txt": 0o644,
    }


@pytest.mark.parametrize("kept", ["notes.txt", "jobs.db"])
def test_a_directory_that_is_shared_is_left_as_it_is(tmp_path: Path, kept: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o1777 if kept == "jobs.db" else 0o755)
    (data / kept).touch(0o644)
    private_directory(data)
    assert mode(data) & 0o077
    assert mode(data / kept) == (0o600 if kept == "jobs.db" else 0o644)


def test_a_database_and_its_log_are_for_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    create_private(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
        assert {each.name: mode(each) for each in tmp_path.iterdir()} == {
            "some.db": 0o600,
            "some.db-wal": 0o600,
            "some.db-shm": 0o600,
        }


def test_a_place_that_is_not_there_is_left_to_sqlite(tmp_path: Path) -> None:
    create_private(tmp_path / "missing" / "some.db")
    assert not (tmp_path / "missing").exists()

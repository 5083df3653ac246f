"""An SQLite database of jobs whose disk is full: what is answered, what is logged, and that it goes on afterwards."""

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.events.errors import DatabaseFailed
from penstock.events.store.sqlite import sqlite_repository
from tests.rigs.jobs import JobRig

FULL = "its disk is full; make room there"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Every connection that is made; the first one of a database writes."""
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembering(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        made.append(connect(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", remembering)
    return made


async def test_a_full_disk_is_told_to_who_asks_and_once_to_the_log(
    tmp_path: Path, connections: list[sqlite3.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    rig = JobRig(sqlite_repository(tmp_path / "jobs.db"))
    await rig.repository.open(rig.now_ms)
    kept = await rig.make()
    connections[0].execute("PRAGMA max_page_count = 1")
    for _ in range(3):
        with pytest.raises(DatabaseFailed, match=f"nothing of it was kept: {FULL}"):
            await rig.make(payload=b"x" * 100_000)
    assert [record.levelno for record in caplog.records if FULL in record.getMessage()] == [logging.ERROR]

    connections[0].execute("PRAGMA max_page_count = 1000000")
    also = await rig.make(payload=b"x" * 100_000)
    assert await rig.queue_all() == [kept, also]
    await rig.repository.close()


async def test_a_disk_that_is_full_from_the_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def cramped(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.execute("PRAGMA max_page_count = 2")
        return connection

    monkeypatch.setattr(sqlite3, "connect", cramped)
    with pytest.raises(DatabaseFailed, match=f"cannot be opened: {FULL}"):
        await sqlite_repository(tmp_path / "jobs.db").open(0)

"""The SQLite writer commits together what waits, and takes back only what fails."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event

import pytest

from penstock.events.errors import DatabaseFailed, JobNotFound
from penstock.events.store.database import Transaction, Work
from penstock.events.store.sqlite import SqliteDatabase

NOW_MS = 1_700_000_000_000


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = SqliteDatabase(tmp_path / "jobs.db")
    await opened.open(NOW_MS)
    yield opened
    await opened.close()


def turn(tx: Transaction) -> int:
    """Count, in the database."""
    return tx.take_turns(1)[0]


def refused(tx: Transaction) -> int:
    tx.take_turns(1)
    raise JobNotFound("x")


def broken(tx: Transaction) -> int:
    tx.take_turns(1)
    tx.all("take_turns")  # which misses a value
    return 0


@pytest.mark.parametrize("failing", [refused, broken])
async def test_a_failed_change_takes_only_itself_back(database: SqliteDatabase, failing: Work[int]) -> None:
    held = Event()
    # While the writer is held, the others wait, and are then one commit.
    first = asyncio.create_task(database.write(lambda tx: held.wait() and 0))
    await asyncio.sleep(0)
    others = [asyncio.create_task(database.write(work)) for work in (turn, failing, turn, failing, turn)]
    await asyncio.sleep(0)
    held.set()
    results = await asyncio.gather(first, *others, return_exceptions=True)
    assert [results[place] for place in (0, 1, 3, 5)] == [0, 1, 2, 3]
    assert all(isinstance(results[place], JobNotFound | DatabaseFailed) for place in (2, 4))
    assert await database.write(turn) == 4


@pytest.mark.parametrize("failing", [refused, broken])
async def test_a_change_that_fails_alone_leaves_nothing(database: SqliteDatabase, failing: Work[int]) -> None:
    with pytest.raises((JobNotFound, DatabaseFailed)):
        await database.write(failing)
    assert await database.write(turn) == 1


async def test_what_a_failed_change_announced_calls_no_one(database: SqliteDatabase) -> None:
    def announced(tx: Transaction) -> None:
        tx.announce()
        raise JobNotFound("x")

    with pytest.raises(JobNotFound):
        await database.write(announced)
    calls = asyncio.create_task(database.signal.wait())
    assert await database.write(turn) == 1
    done, _ = await asyncio.wait({calls}, timeout=0)
    assert not done
    calls.cancel()

"""What waits for the disk: what was accepted and what was delivered, not claims and publications (SCHED-CLAIM-5)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pytest

from penstock.edge.clock import SystemClock
from penstock.events.store.database import Database, Transaction, Work
from penstock.events.store.postgres import PostgresDatabase
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import SqliteDatabase
from penstock.spark.database import SparkDatabase
from tests.rigs.jobs import JobRig

Result = TypeVar("Result")

_SQLITE = "SELECT synchronous >= 2 FROM pragma_synchronous"
_POSTGRES = "SELECT current_setting('synchronous_commit') = 'on'"


class NotedWrites:
    """A database that notes of each write whether its commit is flushed before the answer."""

    def __init__(self, database: Database, setting: str) -> None:
        self._database = database
        self._setting = setting
        self.flushed: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, work: Work[Result]) -> Result:
        return await self._database.write(self._noting(work))

    async def write_unflushed(self, work: Work[Result]) -> Result:
        return await self._database.write_unflushed(self._noting(work))

    def _noting(self, work: Work[Result]) -> Work[Result]:
        def noted(tx: Transaction) -> Result:
            self.flushed.append(bool(tx.select(self._setting, {})[0][0]))
            return work(tx)

        return noted

    def take(self) -> set[bool]:
        taken = set(self.flushed)
        self.flushed.clear()
        return taken


@pytest.fixture
async def writes(database_kind: str, database: SparkDatabase) -> AsyncIterator[NotedWrites]:
    if database_kind == "sqlite":
        yield NotedWrites(SqliteDatabase(database.path), _SQLITE)
    else:
        # The server of the tests flushes nothing by default.
        separator = "&" if "?" in database.url else "?"
        url = f"{database.url}{separator}options=-csynchronous_commit%3Don"
        yield NotedWrites(PostgresDatabase(url, schema=database.schema), _POSTGRES)


@pytest.fixture
async def rig(writes: NotedWrites) -> AsyncIterator[JobRig]:
    repository = JobRepository(writes)
    await repository.open(SystemClock().now_ms())
    yield JobRig(repository)
    await repository.close()


async def test_what_was_accepted_and_delivered_is_flushed_and_claims_are_not(rig: JobRig, writes: NotedWrites) -> None:
    await rig.repository.publish([rig.new_event(group="anna")], [], rig.now_ms)
    await rig.make("anna")
    assert writes.take() == {True}
    (job,) = await rig.claim()
    assert await rig.queue([job]) == [job.id]
    assert writes.take() == {False}
    await rig.deliver(job.id)
    assert writes.take() == {True}


async def test_a_commit_that_is_shared_with_a_flushed_change_is_flushed(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "jobs.db")
    await database.open(SystemClock().now_ms())
    noted = NotedWrites(database, _SQLITE)
    begun, held = Event(), Event()

    def hold(tx: Transaction) -> None:
        begun.set()
        held.wait()

    first = asyncio.create_task(noted.write_unflushed(hold))
    await asyncio.to_thread(begun.wait)
    # While the first is held, these wait, and are then one commit.
    others = [asyncio.create_task(write(lambda tx: None)) for write in (noted.write_unflushed, noted.write)]
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(first, *others)
    assert noted.flushed == [False, True, True]
    await noted.write_unflushed(lambda tx: None)
    assert noted.flushed[-1] is False
    await database.close()

"""Whoever waits for jobs is called when another user of the database has created or rescheduled one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.domain.outcome import AttemptOutcome
from penstock.events.store.postgres import postgres_repository
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.deliveries import TryLater
from penstock.events.store.sqlite import sqlite_repository
from tests.rigs.jobs import JobRig

LONG_S = 60


@pytest.fixture(params=["sqlite", "postgres"])
async def waiting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[JobRepository, JobRig]]:
    """A repository that is waited on, and another on the same database, as another process has it."""
    if request.param == "sqlite":
        waits, other = (sqlite_repository(tmp_path / "jobs.db") for _ in range(2))
    else:
        url = request.getfixturevalue("postgres_database")
        waits, other = postgres_repository(url, listen=True), postgres_repository(url)
    rig = JobRig(other)
    await waits.open(rig.now_ms)
    await other.open(rig.now_ms)
    yield waits, rig
    await other.close()
    await waits.close()


async def called(waits: JobRepository) -> None:
    async with asyncio.timeout(LONG_S):
        await waits.signal.wait()


async def test_a_job_that_another_creates(waiting: tuple[JobRepository, JobRig]) -> None:
    waits, rig = waiting
    call = asyncio.create_task(called(waits))
    await rig.make()
    await call


async def test_a_job_that_another_will_try_again_later(waiting: tuple[JobRepository, JobRig]) -> None:
    waits, rig = waiting
    await rig.make()
    (job_id,) = await rig.queue_all()
    await called(waits)
    begin = await rig.begin(job_id)
    call = asyncio.create_task(called(waits))
    assert await rig.finish(begin.job, TryLater(rig.now_ms + 1000), AttemptOutcome.FAILED)
    await call

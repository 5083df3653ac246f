"""Jobs on PostgreSQL when connections are lost and when other processes make jobs."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from penstock.domain.job_state import JobStatus
from penstock.events.errors import DatabaseFailed
from penstock.events.store import Beginning, DeliveryLease, StoredState
from penstock.events.store.postgres import postgres_repository
from tests.rigs.jobs import JobRig
from tests.rigs.penstock_process import wait_until

END_ALL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

WAITING_FOR_A_LOCK = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
async def rig(postgres_database: str) -> AsyncIterator[JobRig]:
    """A repository that listens."""
    rig = JobRig(postgres_repository(postgres_database, listen=True))
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


def end_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(END_ALL)


async def test_a_job_made_by_another_process_calls_the_scheduler(rig: JobRig, postgres_database: str) -> None:
    other = JobRig(postgres_repository(postgres_database))
    await other.repository.open(other.now_ms)
    waiting = asyncio.create_task(rig.called())

    job_id = await other.make()

    await waiting
    assert await rig.claim_ids() == [job_id]
    await other.repository.close()


async def test_after_a_lost_connection_the_scheduler_is_called_since_it_may_have_missed_something(
    rig: JobRig, postgres_database: str
) -> None:
    waiting = asyncio.create_task(rig.called())
    end_connections(postgres_database)
    await waiting


async def test_transactions_go_on_over_new_connections(rig: JobRig, postgres_database: str) -> None:
    await asyncio.gather(*(rig.make(f"g{n}") for n in range(8)))
    end_connections(postgres_database)

    job_id = await rig.make("after")

    assert await rig.status(job_id) is JobStatus.PENDING
    assert len(await rig.claim()) == 9


async def test_a_read_that_finds_its_connection_lost_fails_once(rig: JobRig, postgres_database: str) -> None:
    job_id = await rig.make()
    end_connections(postgres_database)

    with pytest.raises(DatabaseFailed):
        await rig.status(job_id)
    assert await rig.status(job_id) is JobStatus.PENDING


async def test_a_database_that_is_not_there_is_told_without_the_password() -> None:
    repository = postgres_repository("postgresql://me:hush-hush@127.0.0.1:1/nowhere")

    with pytest.raises(DatabaseFailed, match=r"127\.0\.0\.1:1") as raised:
        await repository.open(0)

    assert "hush" not in str(raised.value)
    await repository.close()


async def test_a_closed_repository_says_so(postgres_database: str) -> None:
    rig = JobRig(postgres_repository(postgres_database))
    await rig.repository.open(rig.now_ms)
    await rig.repository.close()

    with pytest.raises(DatabaseFailed, match="not open"):
        await rig.make()


async def test_a_pointer_that_comes_while_its_job_is_marked_as_queued_is_not_lost(
    rig: JobRig, postgres_database: str
) -> None:
    """The router asks about a job that is PENDING, waits for the scheduler's transaction, and finds it QUEUED."""
    job_id = await rig.make()
    await rig.claim()
    lease = DeliveryLease(now_ms=rig.now_ms, until_ms=rig.now_ms + 60_000)
    with (
        psycopg.connect(postgres_database, options="-c search_path=penstock_jobs") as scheduler,
        psycopg.connect(postgres_database, autocommit=True) as watch,
    ):
        scheduler.execute("SELECT 1 FROM lanes FOR UPDATE")
        scheduler.execute("UPDATE jobs SET state = %s", (int(StoredState.QUEUED),))
        explaining = asyncio.create_task(rig.repository.explain([job_id], lease))
        await asyncio.to_thread(wait_until, lambda: watch.execute(WAITING_FOR_A_LOCK).fetchall())
        scheduler.commit()
        answers = await explaining
    assert answers[job_id].what is Beginning.BEGUN

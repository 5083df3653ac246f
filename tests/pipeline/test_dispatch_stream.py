"""Dispatch as a streaming job: ticks, leadership, chores, and what happens once."""

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.domain.job_state import JobStatus
from penstock.domain.order import LaneKey
from penstock.edge.clock import SystemClock
from penstock.events.dispatch.spark.leader import LeaseSettings
from penstock.events.dispatch.spark.query import DispatchQuery
from penstock.events.dispatch.spark.round import DispatchRounds
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.lanes import LaneOwner
from penstock.events.store.repository.leader import SCHEDULER
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.ticks import TickReader
from penstock.spark.supervisor import StreamingJob
from tests.pipeline.dispatch_engines import SETTINGS, destination
from tests.pipeline.dispatch_jobs import LEASE, WITHIN_S, have_status, make, nobody_leads, received

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

QUEUED, PENDING = JobStatus.QUEUED, JobStatus.PENDING


@pytest.fixture
def queue_uri(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/queue.db?queue=dispatch"


@pytest.fixture
def make_job(database: SparkDatabase, queue_uri: str) -> Callable[..., DispatchQuery]:
    def made(*, once: bool = False, lease: LeaseSettings = LEASE, queue: str = queue_uri) -> DispatchQuery:
        rounds = DispatchRounds(database=database, destination=destination(queue), settings=SETTINGS)
        return DispatchQuery(rounds, lease, once=once)

    return made


async def start(job: StreamingJob, spark: SparkSession, checkpoint: Path) -> StreamingQuery:
    return await asyncio.to_thread(job.start, spark, str(checkpoint))


async def test_jobs_are_published_as_they_come_and_as_they_come_due_while_this_node_leads(
    spark: SparkSession,
    jobs: JobRepository,
    make_job: Callable[..., DispatchQuery],
    queue_uri: str,
    tmp_path: Path,
) -> None:
    other = await jobs.acquire_lease(SCHEDULER, "another node", SystemClock().now_ms(), 600_000)
    assert other is not None
    job = make_job()
    assert job.lag() is None
    query = await start(job, spark, tmp_path / "checkpoint")
    try:
        assert query.name == job.name == "dispatch"
        held = await make(jobs, "a", "b", "a")
        # Time in which it would have published them.
        await asyncio.sleep(1)
        await have_status(jobs, held, PENDING)
        assert await asyncio.to_thread(job.lag) == 3
        await jobs.release_lease(other, SystemClock().now_ms())
        await have_status(jobs, held, QUEUED)
        later = await make(jobs, "c", delay_ms=300)
        await have_status(jobs, later, QUEUED)
        assert await asyncio.to_thread(job.lag) == 0
    finally:
        await asyncio.to_thread(query.stop)
    await nobody_leads(jobs)
    # It goes on where it was, with what was made meanwhile.
    more = await make(jobs, "a")
    query = await start(job, spark, tmp_path / "checkpoint")
    try:
        await have_status(jobs, more, QUEUED)
    finally:
        await asyncio.to_thread(query.stop)
    assert sorted(await received(queue_uri, 5)) == ["a", "a", "a", "b", "c"]


async def test_once_publishes_what_may_go_and_ends(
    spark: SparkSession,
    jobs: JobRepository,
    make_job: Callable[..., DispatchQuery],
    tmp_path: Path,
) -> None:
    ready = await make(jobs, "a", "b")
    later = await make(jobs, "a", delay_ms=600_000)
    query = await start(make_job(once=True), spark, tmp_path / "checkpoint")
    assert await asyncio.to_thread(query.awaitTermination, WITHIN_S)
    await have_status(jobs, ready, QUEUED)
    await have_status(jobs, later, PENDING)
    await nobody_leads(jobs)


async def test_once_fails_when_the_queue_is_not_there(
    spark: SparkSession,
    jobs: JobRepository,
    make_job: Callable[..., DispatchQuery],
    tmp_path: Path,
) -> None:
    ready = await make(jobs, "a")
    query = await start(
        make_job(once=True, queue="http://127.0.0.1:9/000000000000/none.fifo"), spark, tmp_path / "checkpoint"
    )
    with pytest.raises(Exception, match="the queue cannot be opened"):
        await asyncio.to_thread(query.awaitTermination, WITHIN_S)
    await have_status(jobs, ready, PENDING)


async def test_ticks_come_while_lanes_are_awake_and_only_then(database: SparkDatabase, jobs: JobRepository) -> None:
    reader = TickReader(database)
    limit = reader.getDefaultReadLimit()
    nothing = reader.initialOffset()
    try:
        assert reader.latestOffset(nothing, limit) == nothing
        (job,) = await make(jobs, "a")
        assert reader.latestOffset(nothing, limit) == {"tick": 1}
        await jobs.cancel([job], SystemClock().now_ms())
        # Whoever reads the lane finds out that it has nothing to give.
        await jobs.lanes.let_sleep([LaneKey("DISPATCH_JOB:a", True)], LaneOwner("a"), SystemClock().now_ms())
        assert reader.latestOffset({"tick": 1}, limit) == {"tick": 1}
    finally:
        reader.stop()


async def test_a_reader_that_was_taken_to_another_process_connects_anew(
    database: SparkDatabase, jobs: JobRepository
) -> None:
    await make(jobs, "a")
    reader = TickReader(database)
    assert reader.latestOffset({"tick": 4}, reader.getDefaultReadLimit()) == {"tick": 5}
    copy = pickle.loads(pickle.dumps(reader))
    reader.stop()
    assert copy.latestOffset({"tick": 5}, copy.getDefaultReadLimit()) == {"tick": 6}
    copy.stop()

"""Dispatch while few lanes are awake: the driver publishes, and Spark does nothing."""

import asyncio
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from penstock.domain.job import NewJob
from penstock.domain.job_state import JobStatus
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.dispatch.spark.leader import DriverLeader
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.lanes import LaneOwner
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.ticks import TickReader
from tests.pipeline.dispatch_engines import SETTINGS, destination
from tests.pipeline.dispatch_jobs import LEASE, have_status, make, nobody_leads, received
from tests.rigs.jobs import unlimited

QUEUED, PENDING = JobStatus.QUEUED, JobStatus.PENDING


@pytest.fixture
def queue_uri(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/queue.db?queue=dispatch"


async def test_no_tick_comes_while_the_driver_publishes_from_few_lanes(
    database: SparkDatabase, jobs: JobRepository
) -> None:
    reader = TickReader(database, few_lanes=2)
    limit = reader.getDefaultReadLimit()
    try:
        await make(jobs, "a", "b")
        assert reader.latestOffset({"tick": 1}, limit) == {"tick": 1}
        await make(jobs, "c")
        assert reader.latestOffset({"tick": 1}, limit) == {"tick": 2}
    finally:
        reader.stop()


async def test_the_driver_publishes_from_few_lanes_without_spark_and_leaves_many_to_it(
    database: SparkDatabase, jobs: JobRepository, queue_uri: str
) -> None:
    settings = msgspec.structs.replace(SETTINGS, few_lanes=2)
    many = [
        NewJob(id=f"{number:013}", target="https://a.example", created_at_ms=0, group=f"g{number}")
        for number in range(3)
    ]
    await jobs.create_jobs(many, SystemClock().now_ms())
    leader = DriverLeader(
        database, settings, LEASE, SystemClock(), process_ids(), destination(queue_uri), publishes=True
    )
    await asyncio.to_thread(leader.open)
    try:
        assert await asyncio.to_thread(leader.leads_within, 60.0)
        now_ms = SystemClock().now_ms()
        runs = await jobs.lanes.read(now_ms, 100, unlimited())
        assert {job.id for run in runs for job in run.jobs} == {job.id for job in many}
        # A round of Spark takes two of them; then few are left, and the driver goes on.
        spark = LaneOwner("a round", leader.leadership.token)
        await jobs.lanes.claim({run.lane: run.turn for run in runs[:2]}, spark, now_ms, 600_000)
        await have_status(jobs, [job.id for run in runs[2:] for job in run.jobs], QUEUED)
        await have_status(jobs, [job.id for run in runs[:2] for job in run.jobs], PENDING)
        few = await make(jobs, "a", "b", "a")
        await have_status(jobs, few, QUEUED)
        due = await make(jobs, "b", delay_ms=300)
        await have_status(jobs, due, QUEUED)
    finally:
        await asyncio.to_thread(leader.close)
    await nobody_leads(jobs)
    left = runs[2].lane.group_key.removeprefix("DISPATCH_JOB:")
    assert sorted(await received(queue_uri, 5)) == sorted(["a", "a", "b", "b", left])


async def test_the_driver_is_called_when_a_round_ends_and_when_another_process_wakes_lanes(
    database: SparkDatabase, jobs: JobRepository, queue_uri: str
) -> None:
    never = msgspec.structs.replace(SETTINGS.scheduler, poll_interval_s=3600.0)
    settings = msgspec.structs.replace(SETTINGS, few_lanes=1, scheduler=never)
    first, second = await make(jobs, "a", "b")
    leader = DriverLeader(
        database, settings, LEASE, SystemClock(), process_ids(), destination(queue_uri), publishes=True
    )
    await asyncio.to_thread(leader.open)
    try:
        assert await asyncio.to_thread(leader.leads_within, 60.0)
        now_ms = SystemClock().now_ms()
        runs = await jobs.lanes.read(now_ms, 100, unlimited())
        (taken,) = [run for run in runs if first in [job.id for job in run.jobs]]
        spark = LaneOwner("a round", leader.leadership.token)
        await jobs.lanes.claim({taken.lane: taken.turn}, spark, now_ms, 600_000)
        leader.release(Counter())
        await have_status(jobs, [second], QUEUED)
        await have_status(jobs, await make(jobs, "c"), QUEUED)
    finally:
        await asyncio.to_thread(leader.close)

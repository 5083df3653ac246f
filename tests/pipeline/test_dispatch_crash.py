"""Dispatch on Spark that is cut off, or runs twice at once: every job lies in the queue once, in order."""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import uuid4

import msgspec
import pyarrow
import pytest
from pyspark.sql import SparkSession

from penstock.domain.job import ClaimedJob, NewJob
from penstock.domain.job_state import JobStatus
from penstock.domain.order import LaneKey
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.dispatch.spark.messages import DispatchReport, TaskRequest
from penstock.events.dispatch.spark.round import DispatchRounds, Work
from penstock.events.dispatch.spark.task import publish_planned
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.lanes import LaneOwner, Lanes
from penstock.events.store.repository.leader import SCHEDULER
from penstock.spark.database import SparkDatabase
from tests.pipeline.dispatch_engines import SETTINGS, destination, in_queue
from tests.rigs.jobs import any_awake, unlimited
from tests.services.sqs_server import SqsServer, running

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

GROUPS = 40
PER_GROUP = 5
JOBS = GROUPS * PER_GROUP
OWNER = LaneOwner("query/7")
MOST = 10_000


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    with running(tmp_path_factory.mktemp("sqs"), "--memory") as server:
        yield server


@pytest.fixture
def queue_url(sqs: SqsServer) -> str:
    attributes = {"FifoQueue": "true"}
    url: str = sqs.anyone.create_queue(QueueName=f"d-{uuid4().hex}.fifo", Attributes=attributes)["QueueUrl"]
    return url


@pytest.fixture
def database(postgres_database: str) -> SparkDatabase:
    return SparkDatabase(postgres_database)


@pytest.fixture
async def wanted(jobs: JobRepository) -> dict[str, list[str]]:
    """Jobs that are made, by group, in order."""
    now_ms, ids = SystemClock().now_ms(), process_ids()
    made = [
        NewJob(id=ids.next_id(now_ms), target="https://a.example", created_at_ms=now_ms, group=f"g{number % GROUPS}")
        for number in range(JOBS)
    ]
    await jobs.create_jobs(made, now_ms)
    by_group: dict[str, list[str]] = defaultdict(list)
    for job in made:
        by_group[job.group_key].append(job.id)
    return by_group


async def go(
    spark: SparkSession,
    database: SparkDatabase,
    queue_url: str,
    owner: LaneOwner = OWNER,
    work: Work = publish_planned,
    tasks: int | None = None,
) -> DispatchReport:
    """One round in an owner's name."""
    settings = msgspec.structs.replace(SETTINGS, tasks=tasks)
    rounds = DispatchRounds(database=database, destination=destination(queue_url), settings=settings, work=work)
    repository = database.repository()
    now_ms = SystemClock().now_ms()
    await repository.open(now_ms)
    ranges = await repository.lanes.awake_ranges(owner.name, now_ms, MOST, unlimited())
    await repository.close()

    def run() -> DispatchReport:
        spec = rounds.spec(ranges, owner, now_ms=now_ms, until_ms=now_ms + 120_000)
        return rounds.run(spark, spec)

    return await asyncio.to_thread(run)


def dying(batches: Iterable[pyarrow.RecordBatch], order: TaskRequest) -> Iterator[pyarrow.RecordBatch]:
    """A task whose process is killed when it has published, and comes to mark that for the second time."""
    mark = Lanes.mark_published
    marks = 0

    async def mark_or_die(
        self: Lanes, jobs: Sequence[ClaimedJob], done: Mapping[LaneKey, str | None], owner: LaneOwner, *times: int
    ) -> None:
        nonlocal marks
        marks += 1
        if marks == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        await mark(self, jobs, done, owner, *times)

    Lanes.mark_published = mark_or_die  # type: ignore[assignment, method-assign]
    # Small waves, so that there is a second one.
    settings = msgspec.structs.replace(order.settings, groups_at_once=10)
    yield from publish_planned(batches, msgspec.structs.replace(order, settings=settings))


async def test_a_round_that_was_killed_before_it_could_mark_is_repeated_at_once_in_its_own_name(
    spark: SparkSession,
    database: SparkDatabase,
    jobs: JobRepository,
    sqs: SqsServer,
    queue_url: str,
    wanted: dict[str, list[str]],
) -> None:
    with pytest.raises(Exception, match="crashed"):
        # One task: of two, the other might go on for a moment after Spark has given up on it.
        await go(spark, database, queue_url, work=dying, tasks=1)
    pending = (await jobs.counts())[JobStatus.PENDING]
    assert 0 < pending < JOBS
    # Someone else gets nothing of what the dead one has claimed; it itself gets everything, without waiting.
    others = sum(part.lanes for part in await jobs.lanes.awake_ranges("query/8", 0, MOST, unlimited()))
    assert others < sum(part.lanes for part in await jobs.lanes.awake_ranges(OWNER.name, 0, MOST, unlimited()))
    report = await go(spark, database, queue_url)
    assert (report.published, report.failed) == (pending, 0)
    assert (await jobs.counts())[JobStatus.QUEUED] == JOBS
    assert in_queue(sqs, queue_url) == wanted


async def test_two_attempts_at_once_put_every_job_in_once_and_in_order(
    spark: SparkSession,
    database: SparkDatabase,
    jobs: JobRepository,
    sqs: SqsServer,
    queue_url: str,
    wanted: dict[str, list[str]],
) -> None:
    await asyncio.gather(go(spark, database, queue_url), go(spark, database, queue_url))
    assert (await jobs.counts())[JobStatus.QUEUED] == JOBS
    assert in_queue(sqs, queue_url) == wanted
    assert not await any_awake(jobs.lanes)


async def test_a_round_of_a_node_that_was_followed_by_another_publishes_nothing(
    spark: SparkSession,
    database: SparkDatabase,
    jobs: JobRepository,
    sqs: SqsServer,
    queue_url: str,
    wanted: dict[str, list[str]],
) -> None:
    now_ms = SystemClock().now_ms()
    old = await jobs.acquire_lease(SCHEDULER, "a", now_ms - 10_000, 1)
    new = await jobs.acquire_lease(SCHEDULER, "b", now_ms, 60_000)
    assert old is not None
    assert new is not None
    report = await go(spark, database, queue_url, LaneOwner("query/1", old.token))
    assert (report.is_stale, report.published) == (True, 0)
    assert in_queue(sqs, queue_url) == {}
    report = await go(spark, database, queue_url, LaneOwner("query/2", new.token))
    assert (report.is_stale, report.published) == (False, JOBS)
    assert in_queue(sqs, queue_url) == wanted


async def test_a_queue_that_does_not_answer_is_told_of_and_nothing_is_claimed(
    spark: SparkSession, database: SparkDatabase, jobs: JobRepository, wanted: dict[str, list[str]]
) -> None:
    report = await go(spark, database, "http://127.0.0.1:9/000000000000/none.fifo")
    assert (report.in_trouble, report.claimed, report.published) == (True, 0, 0)
    assert report.trouble is not None
    assert report.trouble.startswith("the queue cannot be opened: ")
    assert sum(part.lanes for part in await jobs.lanes.awake_ranges("query/8", 0, MOST, unlimited())) == len(wanted)

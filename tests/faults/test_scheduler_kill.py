"""Two schedulers on PostgreSQL and Penstock's SQS server: one leads, and is killed or stopped while it publishes."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.domain.job_state import JobStatus
from penstock.edge.clock import SystemClock
from penstock.events.process.tokens import AuthTokens
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import sqlite_repository
from penstock.queues.open import QueueSpec, source_for
from penstock.spark.database import SparkDatabase
from tests.rigs.penstock_process import SECRET, SchedulerProcess
from tests.rigs.queued_jobs import WITHIN_S, comes_true, make_jobs, until_all_queued, until_published
from tests.services.redis import RedisServer
from tests.services.sqs_server import SqsServer, counts, drain, running

TARGET = "https://orders.example/hook"
GROUPS = 40
PER_GROUP = 15
JOBS = GROUPS * PER_GROUP
# Leases that a busy machine can renew and that end soon; small batches, so that there is a middle.
SETTINGS = {
    "PENSTOCK_SCHEDULER__LEASE_TTL_S": "8",
    "PENSTOCK_SCHEDULER__LEASE_RENEW_S": "0.5",
    "PENSTOCK_SCHEDULER__CLAIM_LEASE_S": "3",
    "PENSTOCK_SCHEDULER__MAX_BATCH_SIZE": "20",
    "PENSTOCK_SCHEDULER__MAX_CONCURRENT_GROUPS": "4",
    "PENSTOCK_SCHEDULER__JOBS_PER_LANE": str(PER_GROUP),
}


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    with running(tmp_path_factory.mktemp("sqs"), "--memory") as server:
        yield server


@pytest.fixture
def queue_url(sqs: SqsServer) -> str:
    """A FIFO queue of this test."""
    name = f"dispatch-{uuid4().hex}.fifo"
    url: str = sqs.anyone.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
    return url


@pytest.fixture
def database(postgres_database: str) -> SparkDatabase:
    return SparkDatabase(postgres_database)


@pytest.fixture
def nodes(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_database: str, queue_url: str
) -> Iterator[tuple[SchedulerProcess, SchedulerProcess]]:
    """Two schedulers that are not started; the lease is where the test's parameter says."""
    standby = "sql"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        standby = server.url
    options = ("--database", postgres_database, "--queue", queue_url, "--standby", standby)
    made = [SchedulerProcess(tmp_path, name, *options, settings=SETTINGS) for name in ("first", "second")]
    yield made[0], made[1]
    for node in made:
        if node.process is not None:
            node.kill()


def in_queue(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The jobs in the queue by group, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for message in messages:
        pointer = json.loads(message["Body"])
        assert message["Attributes"]["MessageGroupId"] == pointer["messageGroupId"]
        found[pointer["messageGroupId"]].append(pointer["id"])
    return found


def is_leader(node: SchedulerProcess) -> bool:
    return bool(json.loads(node.get("/health"))["leader"])


async def until_leading(node: SchedulerProcess) -> None:
    await comes_true(lambda: asyncio.to_thread(is_leader, node))


@pytest.mark.parametrize("nodes", ["sql", "redis"], indirect=True)
async def test_a_leader_killed_in_mid_publish_is_followed_with_nothing_lost_and_every_group_in_order(
    nodes: tuple[SchedulerProcess, SchedulerProcess], jobs: JobRepository, sqs: SqsServer, queue_url: str
) -> None:
    leader, other = nodes
    await asyncio.to_thread(leader.start)
    await until_leading(leader)
    await asyncio.to_thread(other.start)
    expected = await make_jobs(jobs, JOBS, GROUPS)
    await until_published(sqs, queue_url, 60)
    await asyncio.to_thread(leader.kill)
    assert (await jobs.counts())[JobStatus.PENDING] > 0
    assert not await asyncio.to_thread(is_leader, other)
    await until_all_queued(jobs, JOBS)
    assert await asyncio.to_thread(is_leader, other)
    # None twice either: what was published before the kill and not marked was published again, and deduplicated.
    assert in_queue(await asyncio.to_thread(drain, sqs.anyone, queue_url, JOBS)) == expected
    assert counts(sqs.anyone, queue_url) == (0, 0, 0)
    assert await asyncio.to_thread(other.stop) == 0


@pytest.mark.parametrize("nodes", ["sql"], indirect=True)
async def test_a_leader_that_is_told_to_stop_hands_over_at_once(
    nodes: tuple[SchedulerProcess, SchedulerProcess], jobs: JobRepository, sqs: SqsServer, queue_url: str
) -> None:
    leader, other = nodes
    await asyncio.to_thread(leader.start)
    await until_leading(leader)
    await asyncio.to_thread(other.start)
    expected = await make_jobs(jobs, JOBS, GROUPS)
    await until_published(sqs, queue_url, 60)
    assert await asyncio.to_thread(leader.stop) == 0
    await until_leading(other)
    await until_all_queued(jobs, JOBS)
    messages = await asyncio.to_thread(drain, sqs.anyone, queue_url, JOBS)
    assert in_queue(messages) == expected
    pointer = json.loads(messages[0]["Body"])
    assert AuthTokens([SECRET.encode()]).check(pointer["authToken"], pointer["id"], SystemClock().now_ms())


@pytest.mark.parametrize("nodes", ["sql"], indirect=True)
async def test_metrics_and_groups_tell_what_a_scheduler_does(
    nodes: tuple[SchedulerProcess, SchedulerProcess], jobs: JobRepository
) -> None:
    node = nodes[0]
    await asyncio.to_thread(node.start)
    await until_leading(node)
    await make_jobs(jobs, JOBS, GROUPS)
    await until_all_queued(jobs, JOBS)
    metrics = await asyncio.to_thread(node.get, "/metrics")
    # Some more than once if the machine is so busy that a claim expires.
    (claimed,) = re.findall(r"^penstock_scheduler_claimed_total (\S+)$", metrics, re.MULTILINE)
    assert float(claimed) >= JOBS
    assert "penstock_scheduler_is_leader 1.0" in metrics
    assert "penstock_scheduler_lag_seconds " in metrics
    assert json.loads(await asyncio.to_thread(node.get, "/health"))["status"] == "HEALTHY"
    assert json.loads(await asyncio.to_thread(node.get, "/health/ready"))["status"] == "ready"
    group = json.loads(await asyncio.to_thread(node.get, "/groups/DISPATCH_JOB:g1"))
    assert group == {"group": "DISPATCH_JOB:g1", "blocked": False, "errors": []}


async def test_a_scheduler_of_one_machine_publishes_from_its_directory_to_an_embedded_queue(tmp_path: Path) -> None:
    async def make() -> dict[str, list[str]]:
        jobs = sqlite_repository(tmp_path / "jobs.db")
        await jobs.open(SystemClock().now_ms())
        made = await make_jobs(jobs, JOBS, GROUPS)
        await jobs.close()
        return made

    expected = await make()
    uri = f"sqlite://{tmp_path}/queue.db?queue=dispatch"
    node = SchedulerProcess(tmp_path, "alone", "--data", str(tmp_path), "--queue", uri, settings=SETTINGS)
    await asyncio.to_thread(node.start)
    source = source_for(QueueSpec("dispatch", uri))
    await source.open()
    found: dict[str, list[str]] = defaultdict(list)
    try:
        async with asyncio.timeout(WITHIN_S):
            while sum(map(len, found.values())) < JOBS:
                messages = await source.receive()
                for message in messages:
                    found[message.group or ""].append(json.loads(message.body)["id"])
                await asyncio.gather(*(source.ack(message) for message in messages))
    finally:
        await source.close()
        assert await asyncio.to_thread(node.stop) == 0
    assert found == expected

"""Dispatch on Spark, killed in the middle: a worker of a real cluster, and the driver with all that it started."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.domain.job_state import JobStatus
from penstock.events.store.repository import JobRepository
from penstock.spark.database import SparkDatabase
from tests.rigs.penstock_process import PenstockProcess
from tests.rigs.queued_jobs import make_jobs, received, until_all_queued, until_published
from tests.services.spark_cluster import SparkCluster, running_cluster
from tests.services.sqs_server import SqsServer, counts, running

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

START_S = 120
STOP_S = 60
SETTINGS = {
    "PENSTOCK_JOBS__AUTH_SECRET": "a secret that all nodes share",
    "PENSTOCK_SCHEDULER__STANDBY": "sql",
    # Everything by tasks, which are what is killed.
    "PENSTOCK_PIPELINE__FEW_LANES": "0",
    # Short ones, so that a driver that is started again does not wait for half a minute.
    "PENSTOCK_SCHEDULER__LEASE_TTL_S": "6",
    "PENSTOCK_SCHEDULER__LEASE_RENEW_S": "1",
    # No one delivers the jobs, so that all of a group are in the queue at last.
    "PENSTOCK_SCHEDULER__JOBS_PER_LANE": "100",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def sqs(tmp_path: Path) -> Iterator[SqsServer]:
    with running(tmp_path / "sqs", "--memory") as server:
        yield server


@pytest.fixture
def queue_url(sqs: SqsServer) -> str:
    url: str = sqs.anyone.create_queue(QueueName="dispatch.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    return url


@pytest.fixture
def database(postgres_database: str) -> SparkDatabase:
    return SparkDatabase(postgres_database)


class Driver(PenstockProcess):
    """`penstock pipeline run --only dispatch`, which can be killed and started again where it was."""

    def __init__(self, directory: Path, *options: str) -> None:
        checkpoint = ("--checkpoint", str(directory / "checkpoint"))
        run = ("pipeline", "run", "--only", "dispatch", "--port", "0")
        super().__init__(directory, "driver", (*run, *checkpoint, *options), SETTINGS)


@contextmanager
def driver(directory: Path, *options: str) -> Iterator[Driver]:
    """A driver of which nothing is left behind."""
    made = Driver(directory, *options)
    try:
        yield made
    finally:
        if made.process is not None:
            made.kill()


async def check_queue(sqs: SqsServer, queue_url: str, wanted: dict[str, Sequence[str]], count: int) -> None:
    """Every job is in the queue once, each group in order, and there is nothing else."""
    assert await received(queue_url, count) == wanted
    assert counts(sqs.anyone, queue_url) == (0, 0, 0)


async def test_a_worker_killed_in_the_middle_loses_nothing_doubles_nothing_and_keeps_every_group_in_order(
    cluster: SparkCluster, tmp_path: Path, postgres_database: str, jobs: JobRepository, sqs: SqsServer, queue_url: str
) -> None:
    count = 20_000
    options = ("--database", postgres_database, "--queue", queue_url, *cluster.options)
    with driver(tmp_path, *options) as dispatch:
        await asyncio.to_thread(dispatch.start)
        wanted = await make_jobs(jobs, count, groups=500)
        await until_published(sqs, queue_url, count // 10)
        await asyncio.to_thread(cluster.kill_worker, 0)
        assert (await jobs.counts())[JobStatus.PENDING] > 0
        await until_all_queued(jobs, count)
        assert await asyncio.to_thread(dispatch.stop) == 0
    await check_queue(sqs, queue_url, dict(wanted), count)


async def test_a_driver_killed_with_all_its_processes_goes_on_where_it_was(
    tmp_path: Path, postgres_database: str, jobs: JobRepository, sqs: SqsServer, queue_url: str
) -> None:
    count = 6_000
    options = ("--database", postgres_database, "--queue", queue_url, "--master", "local[2]")
    with driver(tmp_path, *options) as dispatch:
        await asyncio.to_thread(dispatch.start)
        wanted = await make_jobs(jobs, count, groups=200)
        await until_published(sqs, queue_url, count // 10)
        await asyncio.to_thread(dispatch.kill)
        assert (await jobs.counts())[JobStatus.PENDING] > 0
        await asyncio.to_thread(dispatch.start)
        await until_all_queued(jobs, count)
        assert await asyncio.to_thread(dispatch.stop) == 0
    await check_queue(sqs, queue_url, dict(wanted), count)

"""All streams on a cluster of three workers: one is lost, and the driver moves to a machine that has no checkpoints."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.domain.event import StoredEvent
from penstock.domain.subscription import Pool, Subscription
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.store.repository import JobRepository
from penstock.spark.database import SparkDatabase
from tests.rigs.facts import FactsRig, attempt
from tests.rigs.penstock_process import PenstockProcess
from tests.rigs.queued_jobs import WITHIN_S, comes_true, received, until_all_queued, until_published
from tests.services.spark_cluster import SparkCluster, running_cluster
from tests.services.sqs_server import SqsServer, counts, running

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

POOL = "MOVING"
GROUPS = 100
FIRST, REST = 600, 4_000
SETTINGS = {
    "PENSTOCK_JOBS__AUTH_SECRET": "a secret that all nodes share",
    "PENSTOCK_SCHEDULER__STANDBY": "sql",
    "PENSTOCK_SCHEDULER__LEASE_TTL_S": "6",
    "PENSTOCK_SCHEDULER__LEASE_RENEW_S": "1",
    "PENSTOCK_SCHEDULER__JOBS_PER_LANE": "1000",
    # Everything by tasks, some of which are lost.
    "PENSTOCK_PIPELINE__FEW_EVENTS": "0",
    "PENSTOCK_PIPELINE__FEW_LANES": "0",
}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), workers=3) as started:
        yield started


@pytest.fixture
def sqs(tmp_path: Path) -> Iterator[SqsServer]:
    with running(tmp_path / "sqs", "--memory") as server:
        yield server


@pytest.fixture
def database(postgres_database: str) -> SparkDatabase:
    return SparkDatabase(postgres_database)


async def subscribed(jobs: JobRepository) -> Subscription:
    """A subscription to everything, in a pool that is large enough for all its jobs, as no one delivers them."""
    ids, now_ms = process_ids(), SystemClock().now_ms()
    await jobs.put_pool(Pool(POOL, FIRST + REST))
    subscription = Subscription(
        id=ids.next_id(now_ms), name="billing", pattern="**", target="https://a.example/hook", pool=POOL
    )
    await jobs.add_subscription(subscription)
    return subscription


async def published(jobs: JobRepository, subscription: Subscription, count: int) -> dict[str, list[str]]:
    """Events that the pipeline fans out; the ids of the jobs they get, by group key, in order."""
    ids, now_ms = process_ids(), SystemClock().now_ms()
    events = [
        StoredEvent(
            id=ids.next_id(now_ms), source="/shop", type="orders:placed", received_ms=now_ms, group=f"g{n % GROUPS}"
        )
        for n in range(count)
    ]
    wanted: dict[str, list[str]] = defaultdict(list)
    for first in range(0, count, 1000):
        await jobs.add_events(events[first : first + 1000])
    for event in events:
        wanted[f"{subscription.id}:{event.group}"].append(f"{event.id}-{subscription.id}")
    return wanted


def rows_in(lake: Path) -> Sequence[str]:
    """The jobs that the lake has attempts of, once for each row."""
    if not DeltaTable.is_deltatable(str(lake / "deliveries")):
        return []
    found: list[str] = DeltaTable(str(lake / "deliveries")).to_pyarrow_table(columns=["job_id"])["job_id"].to_pylist()
    return found


async def test_streams_go_on_from_another_checkpoint_root_on_a_cluster_that_lost_a_worker(
    cluster: SparkCluster, tmp_path: Path, database: SparkDatabase, jobs: JobRepository, sqs: SqsServer
) -> None:
    url = sqs.anyone.create_queue(QueueName="dispatch.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    lake, facts = tmp_path / "lake", await asyncio.to_thread(FactsRig, database)

    def driver(machine: str) -> PenstockProcess:
        place = ("--database", database.url, "--queue", url, "--lake", str(lake), "--port", "0")
        checkpoint = ("--checkpoint", (tmp_path / machine / "checkpoint").as_uri())
        arguments = ("pipeline", "run", *place, *checkpoint, *cluster.options)
        return PenstockProcess(tmp_path / machine, "driver", arguments, SETTINGS)

    subscription = await subscribed(jobs)
    wanted = await published(jobs, subscription, FIRST)
    done = [job_id for of_group in wanted.values() for job_id in of_group]
    first = driver("one")
    try:
        await asyncio.to_thread(first.start)
        await until_all_queued(jobs, FIRST)
        await asyncio.to_thread(facts.add_attempts, [attempt(job_id) for job_id in done])
        await comes_true(lambda: asyncio.to_thread(lambda: len(rows_in(lake)) > 0))
        for group_key, job_ids in (await published(jobs, subscription, REST)).items():
            wanted[group_key] += job_ids
        await until_published(sqs, url, FIRST + 1)
        await asyncio.to_thread(cluster.kill_worker, 0)
    finally:
        await asyncio.to_thread(first.kill)

    known = set(done)
    more = [job_id for of_group in wanted.values() for job_id in of_group if job_id not in known]
    with driver("two"):
        await until_all_queued(jobs, FIRST + REST)
        await asyncio.to_thread(facts.add_attempts, [attempt(job_id) for job_id in more])
        async with asyncio.timeout(WITHIN_S):
            await comes_true(lambda: asyncio.to_thread(lambda: len(rows_in(lake)) >= FIRST + REST))

    assert sorted(rows_in(lake)) == sorted([*done, *more])
    assert await received(url, FIRST + REST) == wanted
    assert counts(sqs.anyone, url) == (0, 0, 0)

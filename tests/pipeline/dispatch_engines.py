"""The two engines that publish jobs, behind one word: publish all that may go now."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol
from uuid import uuid4

from pyspark.sql import SparkSession

from penstock.cluster.standby import Alone
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.dispatch.scheduler import Scheduler
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.dispatch.spark.leader import DriverLeader, LeaseSettings
from penstock.events.dispatch.spark.messages import Destination, DispatchSettings
from penstock.events.dispatch.spark.query import DispatchQuery
from penstock.events.dispatch.spark.round import DispatchRounds
from penstock.events.store.repository import JobRepository
from penstock.queues.open import publisher_for
from penstock.spark.database import SparkDatabase
from tests.rigs.jobs import any_awake
from tests.services.sqs_server import SqsServer, counts, receive

ENDPOINT = "http://127.0.0.1:8080/api/dispatch/process"
SECRETS = (b"a secret that all nodes share",)
# A group in trouble rests for so long.
REST_S = 0.5
SETTINGS = DispatchSettings(scheduler=SchedulerSettings(poll_interval_s=REST_S), lanes_per_task=16)
WITHIN_S = 60.0


class Engine(Protocol):
    """Publishes jobs."""

    async def publish_all(self, jobs: JobRepository) -> None:
        """Publish all that may go now."""


def destination(queue_url: str) -> Destination:
    """Where jobs go."""
    return Destination(queue_uri=queue_url, endpoint=ENDPOINT, secrets=SECRETS)


async def at_rest(jobs: JobRepository, held: Callable[[], int] = lambda: 0) -> None:
    """Return when nothing may go any more: no lane is awake, and none is claimed but for a rest."""
    async with asyncio.timeout(WITHIN_S):
        # Another process, or a task of this one, does it.
        while held() or await any_awake(jobs.lanes) or await _any_claimed(jobs):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _any_claimed(jobs: JobRepository) -> bool:
    """Whether a lane is claimed for longer than a rest: its jobs are being published."""
    after_rests_ms = SystemClock().now_ms() + round(2 * REST_S * 1000)
    query = "SELECT 1 FROM lanes WHERE claimed_until_ms > :until_ms LIMIT 1"
    return bool(await jobs._database.read(lambda tx: tx.select(query, {"until_ms": after_rests_ms})))


class InlineEngine:
    """The scheduler in this process."""

    def __init__(self, queue_url: str) -> None:
        self._queue_url = queue_url

    async def publish_all(self, jobs: JobRepository) -> None:
        pointers, publisher = destination(self._queue_url).pointers(), publisher_for(self._queue_url)
        scheduler = Scheduler(jobs, publisher, pointers, Alone(), SETTINGS.scheduler, SystemClock(), name=uuid4().hex)
        await jobs.do_chores(SystemClock().now_ms())
        running = asyncio.create_task(scheduler.run())
        try:
            await at_rest(jobs, lambda: scheduler.jobs_held)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


class SparkEngine:
    """Rounds on Spark, as the streaming job makes them."""

    def __init__(self, spark: SparkSession, database: SparkDatabase, queue_url: str) -> None:
        self._spark = spark
        self._database = database
        self._queue_url = queue_url

    async def publish_all(self, jobs: JobRepository) -> None:
        await jobs.do_chores(SystemClock().now_ms())
        await asyncio.to_thread(self._rounds)

    def _rounds(self) -> None:
        queue = destination(self._queue_url)
        rounds = DispatchRounds(database=self._database, destination=queue, settings=SETTINGS)
        leader = DriverLeader(
            self._database, SETTINGS, LeaseSettings(), SystemClock(), process_ids(), queue, publishes=False
        )
        leader.open()
        try:
            job = DispatchQuery(rounds)
            while leader.ask(lambda jobs: any_awake(jobs.lanes)):
                report = job.round(self._spark, leader, f"{uuid4().hex}/0")
                assert not report.in_trouble, report
        finally:
            leader.close()


def in_queue(sqs: SqsServer, queue_url: str) -> dict[str, list[str]]:
    """All that lies in the queue, by the queue's group, in order; it is taken out."""
    found: dict[str, list[str]] = defaultdict(list)
    while sum(counts(sqs.anyone, queue_url)):
        messages = receive(sqs.anyone, queue_url)
        if messages:
            entries = [
                {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]} for place, message in enumerate(messages)
            ]
            assert not sqs.anyone.delete_message_batch(QueueUrl=queue_url, Entries=entries).get("Failed")
        for message in messages:
            pointer: dict[str, Any] = json.loads(message["Body"])
            found[message["Attributes"]["MessageGroupId"]].append(pointer["id"])
    return found

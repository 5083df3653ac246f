"""Jobs that a scheduler publishes from a database to an SQS queue, in processes that a test kills meanwhile."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable

from penstock.domain.job import NewJob
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL, JobStatus
from penstock.domain.subscription import Pool
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.store.repository import JobRepository
from penstock.queues.open import QueueSpec, source_for
from penstock.queues.port import Confirmation
from tests.services.sqs_server import SqsServer, counts

WITHIN_S = 180.0
_AT_ONCE = 5_000


async def make_jobs(jobs: JobRepository, count: int, groups: int) -> dict[str, list[str]]:
    """Jobs of all groups by turns; their ids by group key, in order.

    Their pool is large, since no one delivers them, and so no credit comes back.
    """
    await jobs.put_pool(Pool(DEFAULT_DISPATCH_POOL, count))
    now_ms, ids = SystemClock().now_ms(), process_ids()
    by_group: dict[str, list[str]] = defaultdict(list)
    for start in range(0, count, _AT_ONCE):
        made = [
            NewJob(
                id=ids.next_id(now_ms), target="https://a.example", created_at_ms=now_ms, group=f"g{number % groups}"
            )
            for number in range(start, min(start + _AT_ONCE, count))
        ]
        await jobs.create_jobs(made, now_ms)
        for job in made:
            by_group[job.group_key].append(job.id)
    return by_group


async def comes_true(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until it holds."""
    async with asyncio.timeout(WITHIN_S):
        while not await holds():  # noqa: ASYNC110  another process does it
            await asyncio.sleep(0.01)


async def until_published(sqs: SqsServer, queue_url: str, least: int) -> None:
    """Wait until that many lie in the queue."""

    async def holds() -> bool:
        visible, _, _ = await asyncio.to_thread(counts, sqs.anyone, queue_url)
        return visible >= least

    await comes_true(holds)


async def until_all_queued(jobs: JobRepository, count: int) -> None:
    """Wait until the database says of all that they are in the queue."""

    async def holds() -> bool:
        return (await jobs.counts())[JobStatus.QUEUED] == count

    await comes_true(holds)


async def received(queue_url: str, count: int) -> dict[str, list[str]]:
    """All that lies in the queue, by group, in the order in which a router gets it."""
    source = source_for(QueueSpec("dispatch", queue_url, visibility_timeout=600))
    await source.open()
    found: dict[str, list[str]] = defaultdict(list)
    acks: list[Confirmation] = []
    try:
        async with asyncio.timeout(WITHIN_S):
            while sum(map(len, found.values())) < count:
                for message in await source.receive():
                    found[message.group or ""].append(json.loads(message.body)["id"])
                    acks.append(source.ack(message))
            await asyncio.gather(*acks)
    finally:
        await source.close()
    return found

"""Jobs that tests of dispatch create, wait for, and find in the queue."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.domain.job import NewJob
from penstock.domain.job_state import JobStatus
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.dispatch.spark.leader import LeaseSettings
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.leader import SCHEDULER
from penstock.queues.open import QueueSpec, source_for

WITHIN_S = 150
LEASE = LeaseSettings(standby="sql", ttl_s=10, renew_s=0.5)


async def make(jobs: JobRepository, *groups: str, delay_ms: int | None = None) -> list[str]:
    now_ms, ids = SystemClock().now_ms(), process_ids()
    due_ms = None if delay_ms is None else now_ms + delay_ms
    made = [
        NewJob(
            id=ids.next_id(now_ms),
            target="https://a.example",
            created_at_ms=now_ms,
            group=group,
            scheduled_for_ms=due_ms,
        )
        for group in groups
    ]
    await jobs.create_jobs(made, now_ms)
    return [job.id for job in made]


async def have_status(jobs: JobRepository, ids: list[str], status: JobStatus) -> None:
    async def holds() -> bool:
        return {(await jobs.get_job(job_id)).status for job_id in ids} == {status}

    await comes_true(holds)


async def comes_true(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await holds():  # noqa: ASYNC110  Spark does it
            await asyncio.sleep(0.02)


async def received(queue_uri: str, count: int) -> list[str]:
    """So many messages, by the group they lie in."""
    source = source_for(QueueSpec("dispatch", queue_uri))
    await source.open()
    groups: list[str] = []
    async with asyncio.timeout(WITHIN_S):
        while len(groups) < count:
            for message in await source.receive():
                groups.append((message.group or "").removeprefix("DISPATCH_JOB:"))
                await source.ack(message)
    await source.close()
    return groups


async def nobody_leads(jobs: JobRepository) -> None:
    async def holds() -> bool:
        now_ms = SystemClock().now_ms()
        lease = await jobs.acquire_lease(SCHEDULER, "test", now_ms, 1000)
        return lease is not None and await jobs.release_lease(lease, now_ms)

    await comes_true(holds)

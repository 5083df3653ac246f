"""A backlog of PENDING jobs, and a scheduler that publishes it to the queue."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.cluster import Alone
from penstock.domain.job import NewJob
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.domain.subscription import Pool
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.dispatch import Pointers, Scheduler, SchedulerSettings
from penstock.events.process import AuthTokens
from penstock.events.store import JobRepository
from penstock.queues import publisher_for

TARGET = "https://orders.example/hook"
_CHUNK = 5_000
_PAYLOAD = b'{"order":"0HZXEQ5Y8JY5Z","amount":1999,"currency":"EUR"}'


@asynccontextmanager
async def opened(jobs: JobRepository) -> AsyncIterator[JobRepository]:
    """Provide an open repository."""
    await jobs.open(SystemClock().now_ms())
    try:
        yield jobs
    finally:
        await jobs.close()


async def fill(jobs: JobRepository, count: int, groups: int, named: str = "order") -> None:
    """Create jobs of several groups in turn, whose names begin with `named`."""
    clock = SystemClock()
    ids = process_ids()
    for start in range(0, count, _CHUNK):
        now_ms = clock.now_ms()
        made = [
            NewJob(
                id=ids.next_id(now_ms),
                target=TARGET,
                created_at_ms=now_ms,
                group=f"{named}-{number % groups}",
                payload=_PAYLOAD,
            )
            for number in range(start, min(start + _CHUNK, count))
        ]
        await jobs.create_jobs(made, now_ms)


def new_scheduler(jobs: JobRepository, queue_uri: str, endpoint: str = "http://127.0.0.1:8080/process") -> Scheduler:
    """Return a scheduler with signed tokens, whose lanes do not wait for deliveries."""
    return Scheduler(
        jobs,
        publisher_for(queue_uri),
        Pointers(endpoint, AuthTokens([b"a secret of the benchmark"])),
        Alone(),
        SchedulerSettings(jobs_per_lane=10_000),
        SystemClock(),
        name="bench",
    )


async def drained_per_s(jobs: JobRepository, queue_uri: str, count: int) -> float:
    """Return jobs per second from PENDING to QUEUED: claimed, published, and marked."""
    # Nothing is delivered here: without this, what the pool cannot deliver would stay PENDING.
    await jobs.put_pool(Pool(DEFAULT_DISPATCH_POOL, concurrency=100_000))
    scheduler = new_scheduler(jobs, queue_uri)
    started_s = time.perf_counter()
    running = asyncio.create_task(scheduler.run())
    try:
        while scheduler.counts.published < count or scheduler.jobs_held:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.005)
        return count / (time.perf_counter() - started_s)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

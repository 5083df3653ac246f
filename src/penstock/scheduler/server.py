"""One scheduler process: everything put together, served until a signal, and stopped with nothing lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.http.server.server import HttpServer, stop_signal
from penstock.jobs.leading import SCHEDULER
from penstock.jobs.repository import JobRepository
from penstock.queues.port import Publisher
from penstock.scheduler.app import scheduler_app
from penstock.scheduler.block_on_error_checker import BlockOnErrorChecker
from penstock.scheduler.leaderships import lease_for
from penstock.scheduler.pointers import Pointers
from penstock.scheduler.scheduler import Scheduler
from penstock.scheduler.settings import SchedulerSettings
from penstock.scheduler.standby import RENEW_S, TTL_S, Alone, Standby


class Part(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None:
        """Run."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where it listens, whether it works, and how it finds out whether it leads."""

    scheduler: SchedulerSettings
    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 8082
    standby: str = "off"
    lease_ttl_s: float = TTL_S
    lease_renew_s: float = RENEW_S
    node_id: int | None = None

    def __post_init__(self) -> None:
        if self.lease_renew_s > self.lease_ttl_s / 2:
            raise InvalidArgument(
                f"a lease of {self.lease_ttl_s:g} s that is renewed every {self.lease_renew_s:g} s would be lost at "
                "the first answer that is late: renew it at least twice in its time"
            )


async def serve_scheduler(
    jobs: JobRepository, publisher: Publisher, pointers: Pointers, settings: ServerSettings
) -> None:
    """Serve until SIGINT or SIGTERM; then let the standby take over at once."""
    clock = SystemClock()
    name = process_ids(settings.node_id).next_id(clock.now_ms())
    await jobs.open(clock.now_ms())
    try:
        async with lease_for(settings.standby, jobs, clock, SCHEDULER, name) as lease:
            standby = None
            if lease is not None:
                standby = Standby(lease, ttl_s=settings.lease_ttl_s, renew_s=settings.lease_renew_s)
            leadership = standby or Alone()
            scheduler = Scheduler(jobs, publisher, pointers, leadership, settings.scheduler, clock, name=name)
            app = scheduler_app(scheduler, leadership, BlockOnErrorChecker(jobs))
            server = HttpServer(app, settings.host, settings.port)
            stop = stop_signal(server)
            works = settings.enabled
            # The scheduler ends before the standby gives the lease back.
            async with server, running(standby if works else None), running(scheduler if works else None):
                print(f"listening on {server.url}", flush=True)
                await stop.wait()
    finally:
        await jobs.close()


@asynccontextmanager
async def running(part: Part | None) -> AsyncIterator[None]:
    """Have a part run, and stop it in the end."""
    if part is None:
        yield
        return
    task = asyncio.create_task(part.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

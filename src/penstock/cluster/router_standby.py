"""A router among several of which one consumes: the lease that the scheduler uses, under a name of its own."""

from penstock.cluster.leadership import lease_for
from penstock.cluster.standby import Standby
from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock
from penstock.events.dispatch.server import running
from penstock.events.store.repository import JobRepository
from penstock.router.server import serve_router
from penstock.router.settings import RouterSettings

ROUTER = "router"


async def serve_standby_router(
    settings: RouterSettings,
    standby: str,
    jobs: JobRepository,
    clock: Clock,
    ids: TsidFactory,
    *,
    ttl_s: float,
    renew_s: float,
) -> None:
    """Serve until SIGINT or SIGTERM, and consume while this router leads; then let the next one lead at once."""
    await jobs.open(clock.now_ms())
    try:
        async with lease_for(standby, jobs, clock, ROUTER, ids.next_id(clock.now_ms())) as lease:
            leadership = None if lease is None else Standby(lease, ttl_s=ttl_s, renew_s=renew_s)
            async with running(leadership):
                await serve_router(settings, leadership=leadership)
    finally:
        await jobs.close()

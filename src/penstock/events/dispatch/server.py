"""The scheduler as a process of its own, or together with the API, served until a signal."""

from typing import Protocol

import msgspec

from penstock.cluster import RENEW_S, TTL_S, Alone, Leadership, Standby, lease_for, running
from penstock.domain.errors import InvalidArgument
from penstock.domain.ids import TsidFactory
from penstock.domain.job_state import JobStatus
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.edge.pause import pause
from penstock.events.api import ApiFront, ApiSettings, api_server
from penstock.events.dispatch.health import SchedulerCollector, SchedulerHealth, SchedulerHealthStatus, assess
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.pool_queues import DispatchQueue
from penstock.events.dispatch.scheduler import Scheduler
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.process import PATH as PROCESS_PATH
from penstock.events.process import AuthTokens
from penstock.events.statistics import InlineCounter
from penstock.events.store import SCHEDULER, JobFilter, JobPage, JobRepository
from penstock.http.api import ApiApp, Call, CheckResult, NoBody, NoQuery, Probes, RouteTable, route, routes_of
from penstock.http.auth import RequestGuard
from penstock.http.server import App, HttpServer, stop_signal
from penstock.ops.config import FanOutBy
from penstock.ops.telemetry import Metrics

_MOST_COUNTED = 1000


async def serve_scheduler(
    jobs: JobRepository, queue: DispatchQueue, pointers: Pointers, settings: "SchedulerServerSettings"
) -> None:
    """Serve until SIGINT or SIGTERM, then let the standby take over at once."""
    clock = SystemClock()
    name = process_ids(settings.node_id).next_id(clock.now_ms())
    await jobs.open(clock.now_ms())
    try:
        async with lease_for(settings.standby, jobs, clock, SCHEDULER, name) as lease:
            standby = None
            if lease is not None:
                standby = Standby(lease, ttl_s=settings.lease_ttl_s, renew_s=settings.lease_renew_s)
            leadership = standby or Alone()
            scheduler = Scheduler(
                jobs, queue.publisher, pointers, leadership, settings.scheduler, clock, name=name, queues=queue.pools
            )
            app = scheduler_app(scheduler, leadership, BlockOnErrorChecker(jobs))
            server = HttpServer(app, settings.host, settings.port)
            stop = stop_signal(server)
            works = settings.enabled
            # The scheduler stops before the standby releases the lease.
            async with server, running(standby if works else None), running(scheduler if works else None):
                print(f"listening on {server.url}", flush=True)
                await stop.wait()
    finally:
        await jobs.close()


class SchedulerServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the scheduler listens, whether it runs, and how it takes part in leadership."""

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
                f"a lease of {self.lease_ttl_s:g} s renewed every {self.lease_renew_s:g} s would be lost at the first "
                "late answer: renew it at least twice within its duration"
            )


async def serve_api_with_scheduler(
    jobs: JobRepository,
    queue: DispatchQueue,
    clock: Clock,
    ids: TsidFactory,
    api: ApiSettings,
    scheduling: SchedulerSettings,
    front: ApiFront | None = None,
) -> None:
    """Serve the API and the scheduler on one database until SIGINT or SIGTERM.

    On SQLite this shortens the way of a job: the scheduler is signalled when a job is created, where another process
    would find it at its next poll. Pointers name this process's own address.
    """
    metrics = Metrics("dispatch")
    async with api_server(jobs, clock, ids, api, metrics, front=front) as server:
        stop = stop_signal(server)
        async with server:
            pointers = Pointers(server.url + PROCESS_PATH, AuthTokens(api.secrets), api.default_pool)
            name = ids.next_id(clock.now_ms())
            leadership = Alone()
            scheduler = Scheduler(
                jobs, queue.publisher, pointers, leadership, scheduling, clock, name=name, queues=queue.pools
            )
            metrics.register(SchedulerCollector(scheduler, leadership))
            # With Spark, the pipeline counts.
            inline = api.fan_out is FanOutBy.INLINE
            counter = InlineCounter(jobs.statistics, clock, pause) if inline else None
            async with running(scheduler), running(counter):
                print(f"listening on {server.url}", flush=True)
                await stop.wait()


def scheduler_app(scheduler: Scheduler, leadership: Leadership, checker: "BlockOnErrorChecker") -> App:
    """Return the HTTP API of the scheduler. It is read-only, asks for no token, and is meant for loopback."""

    @route("GET", "/health", summary="Health of the scheduler.")
    def health(_: Call[NoQuery, NoBody]) -> SchedulerHealth:
        return assess(scheduler, leadership)

    @route(
        "GET",
        "/groups/{group}",
        summary="Whether a group is blocked by jobs in ERROR; the key is `subscription:group`.",
    )
    async def group(call: Call[NoQuery, NoBody]) -> "SchedulerGroupView":
        errors = await checker.errors_of(call.path["group"])
        return SchedulerGroupView(call.path["group"], bool(errors), errors)

    async def publishing() -> CheckResult:
        now = assess(scheduler, leadership)
        return CheckResult(now.status is not SchedulerHealthStatus.DEGRADED, now.trouble or now.status.lower())

    metrics = Metrics("scheduler")
    metrics.register(SchedulerCollector(scheduler, leadership))
    return Probes(metrics, {"publishing": publishing}).wrap(
        ApiApp(RouteTable(*routes_of(health, group)), RequestGuard())
    )


class SchedulerGroupView(msgspec.Struct, frozen=True):
    """Whether BLOCK_ON_ERROR jobs of a group wait, and for which jobs in ERROR."""

    group: str
    blocked: bool
    errors: list[str]


class JobLister(Protocol):
    """A repository that lists jobs."""

    async def list_jobs(self, which: JobFilter, cursor: str | None, most: int) -> JobPage:
        """Return a page of jobs, the newest first."""
        ...


class BlockOnErrorChecker:
    """Finds the jobs in ERROR that block a group.

    Such a job blocks the BLOCK_ON_ERROR jobs behind it in its group until it is retried or ignored
    (`domain.order.blocks`). Dispatch applies the rule lane by lane; this checker tells people why a group stands still.
    """

    def __init__(self, jobs: JobLister) -> None:
        self._jobs = jobs

    async def errors_of(self, group_key: str) -> list[str]:
        """Return the ids of the jobs that block a group, the oldest first, up to 1,000."""
        which = JobFilter(status=JobStatus.ERROR, group_key=group_key)
        page = await self._jobs.list_jobs(which, None, _MOST_COUNTED)
        return [job.id for job in reversed(page.jobs)]

"""The scheduler as a process of its own, or together with the API, served until a signal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from penstock.cluster import OFF, RENEW_S, TTL_S, Alone, Leadership, Standby, lease_for, running
from penstock.domain.errors import InvalidArgument
from penstock.domain.ids import TsidFactory
from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.edge.pause import pause
from penstock.events.api import ApiFront, ApiSettings, api_server
from penstock.events.dispatch.health import SchedulerCollector, SchedulerHealth, SchedulerHealthStatus, assess
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.pool_queues import DispatchQueue
from penstock.events.dispatch.scheduler import Scheduler
from penstock.events.dispatch.settings import SchedulerSettings, scheduler_settings
from penstock.events.process import PATH as PROCESS_PATH
from penstock.events.process import AuthTokens
from penstock.events.statistics import InlineCounter
from penstock.events.store import SCHEDULER, JobFilter, JobPage, JobRepository
from penstock.http.api import ApiApp, Call, CheckResult, NoBody, NoQuery, Probes, RouteTable, route, routes_of
from penstock.http.auth import RequestGuard
from penstock.http.server import App, HttpServer, stop_signal
from penstock.ops.config import FanOutBy, SchedulerOptions
from penstock.ops.telemetry import Metrics

_MOST_COUNTED = 1000


class SchedulerRole(msgspec.Struct, frozen=True, kw_only=True):
    """How a process schedules: whether it does, how it takes part in leadership, and which endpoint pointers name."""

    scheduler: SchedulerSettings
    enabled: bool = True
    endpoint: str = ""
    """Empty: the process endpoint of this process."""
    standby: str = OFF
    lease_ttl_s: float = TTL_S
    lease_renew_s: float = RENEW_S

    def __post_init__(self) -> None:
        if self.lease_renew_s > self.lease_ttl_s / 2:
            raise InvalidArgument(
                f"a lease of {self.lease_ttl_s:g} s renewed every {self.lease_renew_s:g} s would be lost at the first "
                "late answer: renew it at least twice within its duration"
            )


def scheduler_role(options: SchedulerOptions, standby: str = "") -> SchedulerRole:
    """Return the role that a configuration gives; `standby` takes precedence."""
    return SchedulerRole(
        scheduler=scheduler_settings(options),
        enabled=options.enabled,
        endpoint=options.chosen_endpoint,
        standby=standby or options.standby or OFF,
        lease_ttl_s=options.lease_ttl_s,
        lease_renew_s=options.lease_renew_s,
    )


class LedScheduler:
    """A scheduler with the leadership that it works under."""

    def __init__(self, scheduler: Scheduler, standby: Standby | None, *, enabled: bool) -> None:
        self.scheduler = scheduler
        self.leadership: Leadership = standby or Alone()
        self._standby = standby
        self._enabled = enabled

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it, unless it is switched off; it stops before the standby releases the lease."""
        standby, scheduler = (self._standby, self.scheduler) if self._enabled else (None, None)
        async with running(standby), running(scheduler):
            yield


@asynccontextmanager
async def led_scheduler(
    jobs: JobRepository, queue: DispatchQueue, pointers: Pointers, role: SchedulerRole, clock: Clock, name: str
) -> AsyncIterator[LedScheduler]:
    """Provide a scheduler that does not run yet; `name` identifies the process."""
    async with lease_for(role.standby, jobs, clock, SCHEDULER, name) as lease:
        standby = None if lease is None else Standby(lease, ttl_s=role.lease_ttl_s, renew_s=role.lease_renew_s)
        scheduler = Scheduler(
            jobs, queue.publisher, pointers, standby or Alone(), role.scheduler, clock, name=name, queues=queue.pools
        )
        yield LedScheduler(scheduler, standby, enabled=role.enabled)


class SchedulerServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The role of a scheduler, and where it listens."""

    role: SchedulerRole
    host: str = "127.0.0.1"
    port: int = 8082
    node_id: int | None = None


async def serve_scheduler(
    jobs: JobRepository, queue: DispatchQueue, pointers: Pointers, settings: SchedulerServerSettings
) -> None:
    """Serve until SIGINT or SIGTERM, then let the standby take over at once."""
    clock = SystemClock()
    name = process_ids(settings.node_id).next_id(clock.now_ms())
    await jobs.open(clock.now_ms())
    try:
        async with led_scheduler(jobs, queue, pointers, settings.role, clock, name) as led:
            app = scheduler_app(led.scheduler, led.leadership, BlockOnErrorChecker(jobs))
            server = HttpServer(app, settings.host, settings.port)
            stop = stop_signal(server)
            async with server, led.running():
                server.announce()
                await stop.wait()
    finally:
        await jobs.close()


async def serve_api_with_scheduler(
    jobs: JobRepository,
    queue: DispatchQueue,
    clock: Clock,
    ids: TsidFactory,
    api: ApiSettings,
    role: SchedulerRole,
    front: ApiFront | None = None,
) -> None:
    """Serve the API and the scheduler on one database until SIGINT or SIGTERM.

    On SQLite this shortens the way of a job: the scheduler is signalled when a job is created, where another process
    would find it at its next poll. Pointers name this process's own address, unless the role has another one.
    """
    metrics = Metrics("dispatch")
    async with api_server(jobs, clock, ids, api, metrics, front=front) as server:
        stop = stop_signal(server)
        async with server:
            endpoint = role.endpoint or server.url + PROCESS_PATH
            pointers = Pointers(endpoint, AuthTokens(api.secrets), api.default_pool)
            # With Spark, the pipeline counts.
            inline = api.fan_out is FanOutBy.INLINE
            counter = InlineCounter(jobs.statistics, clock, pause) if inline else None
            async with led_scheduler(jobs, queue, pointers, role, clock, ids.next_id(clock.now_ms())) as led:
                metrics.register(SchedulerCollector(led.scheduler, led.leadership))
                async with led.running(), running(counter):
                    server.announce()
                    await stop.wait()


def scheduler_app(scheduler: Scheduler, leadership: Leadership, checker: "BlockOnErrorChecker") -> App:
    """Return the HTTP API of the scheduler. It is read-only, asks for no token, and is meant for loopback."""

    @route("GET", "/health", summary="Health of the scheduler.")
    def health(_: Call[NoQuery, NoBody]) -> SchedulerHealth:
        return assess(scheduler, leadership)

    @route(
        "GET",
        "/groups/{group}",
        summary="Whether BLOCK_ON_ERROR jobs in ERROR block a group; the key is `subscription:group`.",
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
    """Finds the jobs in ERROR that block a group: those of mode BLOCK_ON_ERROR, until they are retried or ignored.

    Dispatch applies the rule lane by lane (`domain.order.blocks`); this checker shows people why a group stands still.
    """

    def __init__(self, jobs: JobLister) -> None:
        self._jobs = jobs

    async def errors_of(self, group_key: str) -> list[str]:
        """Return the ids of the jobs that block a group, the oldest first, up to 1,000."""
        which = JobFilter(status=JobStatus.ERROR, group_key=group_key)
        page = await self._jobs.list_jobs(which, None, _MOST_COUNTED)
        return [job.id for job in reversed(page.jobs) if job.mode is DispatchMode.BLOCK_ON_ERROR]

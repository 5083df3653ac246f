"""One scheduler process: everything put together, served until a signal, and stopped with nothing lost.

How the scheduler is: for its probes, for `/health`, and for Prometheus.

Whether a group is blocked by a job in ERROR.

An ERROR job blocks the BLOCK_ON_ERROR jobs behind it in its group, and nothing else, until someone retries or ignores
it (`core.order.blocks`). Dispatch finds that out by itself, lane by lane; this checker answers people who ask why a
group stands still.

The scheduler's HTTP surface: probes, metrics, its health, and why a group stands still.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Protocol

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.cluster import RENEW_S, TTL_S, Alone, Leadership, Standby, lease_for, running
from penstock.domain.errors import InvalidArgument
from penstock.domain.job_state import JobStatus
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.scheduler import Scheduler
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.store import SCHEDULER, JobFilter, JobPage, JobRepository
from penstock.http.api import ApiApp, Call, CheckResult, NoBody, NoQuery, Probes, RouteTable, route, routes_of
from penstock.http.auth import RequestGuard
from penstock.http.server import App, HttpServer, stop_signal
from penstock.ops.telemetry import Metrics
from penstock.queues import Publisher


class SchedulerHealthStatus(StrEnum):
    """From good to bad."""

    HEALTHY = "HEALTHY"
    STANDING_BY = "STANDING_BY"
    DEGRADED = "DEGRADED"


class SchedulerHealth(msgspec.Struct, frozen=True, rename="camel"):
    """What the scheduler does at this moment."""

    status: SchedulerHealthStatus
    leader: bool
    token: int | None
    trouble: str | None
    jobs_in_hand: int
    lag_seconds: float


def assess(scheduler: Scheduler, leadership: Leadership) -> SchedulerHealth:
    """DEGRADED: it leads, and something keeps it from publishing."""
    leads = leadership.is_primary()
    trouble = scheduler.counts.trouble if leads else None
    status = (
        SchedulerHealthStatus.STANDING_BY
        if not leads
        else SchedulerHealthStatus.DEGRADED
        if trouble
        else SchedulerHealthStatus.HEALTHY
    )
    return SchedulerHealth(
        status=status,
        leader=leads,
        token=leadership.token if leads else None,
        trouble=trouble,
        jobs_in_hand=scheduler.jobs_held,
        lag_seconds=scheduler.counts.lag_s,
    )


class SchedulerCollector(Collector):
    """Puts the scheduler's counts into Prometheus' words."""

    def __init__(self, scheduler: Scheduler, leadership: Leadership) -> None:
        self._scheduler = scheduler
        self._leadership = leadership

    def collect(self) -> Iterator[Metric]:
        """Everything."""
        counts = self._scheduler.counts
        health = assess(self._scheduler, self._leadership)
        yield _counter("claimed", "Jobs taken to be published.", counts.claimed)
        yield _counter("published", "Jobs put into the queue, or known to be in it.", counts.published)
        yield _counter("publish_failures", "Jobs that could not be put into the queue.", counts.publish_failures)
        yield _counter("recovered", "Jobs that were lost in the queue or in delivery.", counts.recovered)
        yield _counter("archived", "Finished jobs that went to the archive.", counts.archived)
        yield _counter("errors", "Polls and attempts to open the queue that failed.", counts.errors)
        yield _counter("terms", "Times that this node became the leader.", counts.terms)
        yield _gauge("is_leader", "1 if this node leads.", health.leader)
        yield _gauge("jobs_in_hand", "Jobs claimed and not published yet.", health.jobs_in_hand)
        yield _gauge("groups_in_hand", "Groups that they are of.", self._scheduler.groups_held)
        yield _gauge("lag_seconds", "How long the longest waiting job of the last claim was due.", health.lag_seconds)


def _counter(name: str, doc: str, value: float) -> Metric:
    counter = CounterMetricFamily(f"penstock_scheduler_{name}", doc)
    counter.add_metric([], value)
    return counter


def _gauge(name: str, doc: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(f"penstock_scheduler_{name}", doc)
    gauge.add_metric([], value)
    return gauge


_MOST_COUNTED = 1000


class ListedJobs(Protocol):
    """Jobs that can be looked for."""

    async def list_jobs(self, which: JobFilter, cursor: str | None, most: int) -> JobPage:
        """A page of jobs, the newest first."""
        ...


class BlockOnErrorChecker:
    """Counts the ERROR jobs of a group."""

    def __init__(self, jobs: ListedJobs) -> None:
        self._jobs = jobs

    async def errors_of(self, group_key: str) -> list[str]:
        """The ids of the jobs that block a group, the oldest first, at most 1,000; none if it is not blocked."""
        which = JobFilter(status=JobStatus.ERROR, group_key=group_key)
        page = await self._jobs.list_jobs(which, None, _MOST_COUNTED)
        return [job.id for job in reversed(page.jobs)]


class SchedulerGroupView(msgspec.Struct, frozen=True):
    """Whether BLOCK_ON_ERROR jobs of a group wait, and for which jobs in ERROR."""

    group: str
    blocked: bool
    errors: list[str]


def scheduler_app(scheduler: Scheduler, leadership: Leadership, checker: BlockOnErrorChecker) -> App:
    """The whole surface; it changes nothing, so it asks for no token and is for loopback."""

    @route("GET", "/health", summary="How it is.")
    def health(_: Call[NoQuery, NoBody]) -> SchedulerHealth:
        return assess(scheduler, leadership)

    @route(
        "GET",
        "/groups/{group}",
        summary="Whether a group is blocked by jobs in ERROR; the key is `subscription:group`.",
    )
    async def group(call: Call[NoQuery, NoBody]) -> SchedulerGroupView:
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


class SchedulerServerSettings(msgspec.Struct, frozen=True, kw_only=True):
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
    jobs: JobRepository, publisher: Publisher, pointers: Pointers, settings: SchedulerServerSettings
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

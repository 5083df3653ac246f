"""The health of the scheduler: for its probes, for `/health` and for Prometheus."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.cluster import Leadership
from penstock.events.dispatch.scheduler import Scheduler


class SchedulerHealthStatus(StrEnum):
    """The status of the scheduler."""

    HEALTHY = "HEALTHY"
    STANDING_BY = "STANDING_BY"
    DEGRADED = "DEGRADED"


class SchedulerHealth(msgspec.Struct, frozen=True, rename="camel"):
    """The state of the scheduler at this moment."""

    status: SchedulerHealthStatus
    leader: bool
    token: int | None
    trouble: str | None
    jobs_in_hand: int
    lag_seconds: float


def assess(scheduler: Scheduler, leadership: Leadership) -> SchedulerHealth:
    """Return the scheduler's health; DEGRADED means that it leads but cannot publish."""
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
    """Exports the scheduler's counters to Prometheus."""

    def __init__(self, scheduler: Scheduler, leadership: Leadership) -> None:
        self._scheduler = scheduler
        self._leadership = leadership

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        counts = self._scheduler.counts
        health = assess(self._scheduler, self._leadership)
        yield _counter("claimed", "Jobs claimed for publication.", counts.claimed)
        yield _counter("published", "Jobs published to the queue, or already in it.", counts.published)
        yield _counter("publish_failures", "Jobs that could not be published to the queue.", counts.publish_failures)
        yield _counter("recovered", "Jobs recovered after a loss in the queue or in delivery.", counts.recovered)
        yield _counter("archived", "Finished jobs moved to the archive.", counts.archived)
        yield _counter("errors", "Failed polls and failed attempts to open the queue.", counts.errors)
        yield _counter("terms", "Times this node became the leader.", counts.terms)
        yield _gauge("is_leader", "1 if this node leads.", health.leader)
        yield _gauge("jobs_in_hand", "Jobs claimed and not yet published.", health.jobs_in_hand)
        yield _gauge("groups_in_hand", "Groups of the jobs claimed and not yet published.", self._scheduler.groups_held)
        yield _gauge("lag_seconds", "How long the oldest job of the last claim had been due.", health.lag_seconds)


def _counter(name: str, doc: str, value: float) -> Metric:
    counter = CounterMetricFamily(f"penstock_scheduler_{name}", doc)
    counter.add_metric([], value)
    return counter


def _gauge(name: str, doc: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(f"penstock_scheduler_{name}", doc)
    gauge.add_metric([], value)
    return gauge

"""How the scheduler is: for its probes, for `/health`, and for Prometheus."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.scheduler.scheduler import Scheduler
from penstock.scheduler.standby import Leadership


class HealthStatus(StrEnum):
    """From good to bad."""

    HEALTHY = "HEALTHY"
    STANDING_BY = "STANDING_BY"
    DEGRADED = "DEGRADED"


class SchedulerHealth(msgspec.Struct, frozen=True, rename="camel"):
    """What the scheduler does at this moment."""

    status: HealthStatus
    leader: bool
    token: int | None
    trouble: str | None
    jobs_in_hand: int
    lag_seconds: float


def assess(scheduler: Scheduler, leadership: Leadership) -> SchedulerHealth:
    """DEGRADED: it leads, and something keeps it from publishing."""
    leads = leadership.is_primary()
    trouble = scheduler.counts.trouble if leads else None
    status = HealthStatus.STANDING_BY if not leads else HealthStatus.DEGRADED if trouble else HealthStatus.HEALTHY
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

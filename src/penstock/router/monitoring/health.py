"""The health of the router: a status, with reasons."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from penstock.delivery import BreakerView
from penstock.http.api import Check, CheckResult
from penstock.router.config.sync import ConfigSync, SyncState
from penstock.router.monitoring.views import QueueView, RouterPoolView, RouterSurface
from penstock.router.monitoring.warnings import WarningSeverity

MIN_SUCCESS_RATE = 0.9
MIN_JUDGED = 10
MAX_REASONS = 20


class RouterHealthStatus(StrEnum):
    """Health of the router, best first."""

    HEALTHY = "HEALTHY"
    WARNING = "WARNING"
    DEGRADED = "DEGRADED"


class Health(msgspec.Struct, frozen=True):
    """Health of the router, and the reasons if it is not HEALTHY."""

    status: RouterHealthStatus
    reasons: tuple[str, ...]


def assess(
    sync: SyncState,
    pools: Iterable[RouterPoolView],
    queues: Iterable[QueueView],
    breakers: Iterable[BreakerView],
    warnings: Mapping[WarningSeverity, int],
) -> Health:
    """Return DEGRADED if messages are not delivered as they should be, WARNING if an operator should look."""
    bad = [*_bad_reasons(sync, queues, warnings)]
    poor = [*_poor_reasons(sync, pools, breakers, warnings)]
    status = RouterHealthStatus.DEGRADED if bad else RouterHealthStatus.WARNING if poor else RouterHealthStatus.HEALTHY
    return Health(status, _first((*bad, *poor)))


def readiness(sync: ConfigSync, router: RouterSurface) -> dict[str, Check]:
    """Return the checks of /health/ready: the first sync is done, a queue was reached, and every consumer polls."""

    async def initialised() -> CheckResult:
        ready = sync.state.initialised
        return CheckResult(ready, "" if ready else sync.state.last_failure or "the first sync is under way")

    async def consumers() -> CheckResult:
        queues = router.queues()
        if queues and all(queue.last_poll_age_s is None for queue in queues):
            return CheckResult(False, "no queue has been reached yet")
        stalled = [queue.name for queue in queues if not _polls(queue)]
        if stalled:
            return CheckResult(False, f"not polling: {', '.join(stalled)}")
        missing = [queue.name for queue in queues if queue.missing]
        return CheckResult(True, f"queues that do not exist: {', '.join(missing[:MAX_REASONS])}" if missing else "")

    return {"initialised": initialised, "consumers": consumers}


def _first(reasons: tuple[str, ...]) -> tuple[str, ...]:
    if len(reasons) <= MAX_REASONS:
        return reasons
    return (*reasons[:MAX_REASONS], f"and {len(reasons) - MAX_REASONS} more reasons")


def _bad_reasons(
    sync: SyncState, queues: Iterable[QueueView], warnings: Mapping[WarningSeverity, int]
) -> Iterable[str]:
    if not sync.initialised:
        yield "the first sync of the configuration is not done"
    for queue in queues:
        if not _polls(queue):
            yield f"the consumer of queue {queue.name} does not poll"
    if count := warnings[WarningSeverity.CRITICAL]:
        yield f"{count} critical warnings are not acknowledged"


def _poor_reasons(
    sync: SyncState,
    pools: Iterable[RouterPoolView],
    breakers: Iterable[BreakerView],
    warnings: Mapping[WarningSeverity, int],
) -> Iterable[str]:
    if sync.last_failure is not None:
        yield f"the last sync failed: {sync.last_failure}"
    for pool in pools:
        if pool.queued >= pool.queue_capacity:
            yield f"pool {pool.code} is full"
        if pool.judged >= MIN_JUDGED and pool.success_rate < MIN_SUCCESS_RATE:
            yield f"pool {pool.code} delivers {pool.success_rate:.0%}"
    for breaker in breakers:
        if breaker.state != "CLOSED":
            yield f"the breaker of {breaker.endpoint} is {breaker.state}"
    if count := warnings[WarningSeverity.ERROR]:
        yield f"{count} warnings of severity ERROR are not acknowledged"


def _polls(queue: QueueView) -> bool:
    return queue.healthy or queue.draining

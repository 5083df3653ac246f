"""The scheduler's HTTP surface: probes, metrics, its health, and why a group stands still."""

import msgspec

from penstock.http.api.app import ApiApp
from penstock.http.api.probes import CheckResult, Probes
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import Call, NoBody, Route, RouteTable
from penstock.http.auth.guard import RequestGuard
from penstock.http.server.asgi import App
from penstock.ops.telemetry.metrics import Metrics
from penstock.scheduler.block_on_error_checker import BlockOnErrorChecker
from penstock.scheduler.health import HealthStatus, SchedulerCollector, SchedulerHealth, assess
from penstock.scheduler.scheduler import Scheduler
from penstock.scheduler.standby import Leadership


class GroupView(msgspec.Struct, frozen=True):
    """Whether BLOCK_ON_ERROR jobs of a group wait, and for which jobs in ERROR."""

    group: str
    blocked: bool
    errors: list[str]


def scheduler_app(scheduler: Scheduler, leadership: Leadership, checker: BlockOnErrorChecker) -> App:
    """The whole surface; it changes nothing, so it asks for no token and is for loopback."""

    def health(_: Call[NoQuery, NoBody]) -> SchedulerHealth:
        return assess(scheduler, leadership)

    async def group(call: Call[NoQuery, NoBody]) -> GroupView:
        errors = await checker.errors_of(call.path["group"])
        return GroupView(call.path["group"], bool(errors), errors)

    async def publishing() -> CheckResult:
        now = assess(scheduler, leadership)
        return CheckResult(now.status is not HealthStatus.DEGRADED, now.trouble or now.status.lower())

    metrics = Metrics("scheduler")
    metrics.register(SchedulerCollector(scheduler, leadership))
    table = RouteTable(
        Route(method="GET", path="/health", summary="How it is.", answer=SchedulerHealth, handler=health),
        Route(
            method="GET",
            path="/groups/{group}",
            summary="Whether a group is blocked by jobs in ERROR; the key is `subscription:group`.",
            answer=GroupView,
            handler=group,
        ),
    )
    return Probes(metrics, {"publishing": publishing}).wrap(ApiApp(table, RequestGuard()))

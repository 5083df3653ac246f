"""What `penstock pipeline run` tells over HTTP; it changes nothing, so it asks for no token and is for loopback."""

import msgspec

from penstock.http.api.app import ApiApp
from penstock.http.api.probes import CheckResult, Probes
from penstock.http.api.query import NoQuery
from penstock.http.api.routes import Call, NoBody, Route, RouteTable
from penstock.http.auth.guard import RequestGuard
from penstock.http.server.asgi import App
from penstock.ops.telemetry.metrics import Metrics
from penstock.pipeline.metrics import ProgressCollector
from penstock.pipeline.progress import QueryStatus, QueryView
from penstock.pipeline.supervision import Supervisor

_WELL = (QueryStatus.RUNNING, QueryStatus.FINISHED)


class PipelineView(msgspec.Struct, frozen=True):
    """The streaming jobs of this process."""

    master: str
    queries: list[QueryView]


def run_app(supervisor: Supervisor, metrics: Metrics, master: str) -> App:
    """Health, metrics and the state of every query."""

    def pipeline(_: Call[NoQuery, NoBody]) -> PipelineView:
        return PipelineView(master, supervisor.views)

    async def streaming() -> CheckResult:
        troubled = [f"{view.name} is {view.status.lower()}" for view in supervisor.views if view.status not in _WELL]
        return CheckResult(not troubled, ", ".join(troubled) or "all jobs run")

    metrics.register(ProgressCollector(supervisor.progresses))
    table = RouteTable(
        Route(
            method="GET",
            path="/api/pipeline",
            summary="The streaming jobs: batches, rows, pace, lag, failures.",
            answer=PipelineView,
            handler=pipeline,
        )
    )
    return Probes(metrics, {"streaming": streaming}).wrap(ApiApp(table, RequestGuard()))

"""A process that runs streaming jobs: Spark, its supervisor and their HTTP API, until a signal or their end."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from pyspark.sql import SparkSession

from penstock.edge.pause import pause
from penstock.http.api import ApiApp, Call, CheckResult, NoBody, NoQuery, Probes, RouteTable, route, routes_of
from penstock.http.auth import RequestGuard
from penstock.http.server import App, HttpServer, is_loopback, stop_signal
from penstock.ops.telemetry import Metrics
from penstock.spark.errors import JobsFailed
from penstock.spark.metrics import BatchTimes, ProgressCollector
from penstock.spark.progress import QueryStatus, QueryView
from penstock.spark.session import SessionSettings, close_session, open_session, release_start_up_memory
from penstock.spark.supervisor import QuerySupervisor, StreamingJob

_HEALTHY = (QueryStatus.RUNNING, QueryStatus.FINISHED)
_POLL_S = 0.05


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which Spark to use, where checkpoints are, where to listen, and how long a stop may take.

    On a host that other machines reach, `token` is asked for; without one only the probes and metrics are served.
    """

    session: SessionSettings
    checkpoint: str
    once: bool = False
    host: str = "127.0.0.1"
    port: int = 8083
    token: str = ""
    stop_s: float = 30.0


async def run_pipeline(
    jobs: Sequence[StreamingJob],
    settings: RunSettings,
    start_spark: Callable[[SessionSettings], SparkSession] = open_session,
) -> None:
    """Run the jobs until SIGINT, SIGTERM or, with `once`, their end; JobsFailed if one is not restarted."""
    metrics = Metrics("pipeline")
    supervisor = QuerySupervisor(jobs, settings.checkpoint, BatchTimes(metrics), once=settings.once)
    app = run_app(supervisor, metrics, settings)
    server = HttpServer(app, settings.host, settings.port, credentials_set=True)
    stop = stop_signal(server)
    loop = asyncio.get_running_loop()

    def on_end() -> None:
        loop.call_soon_threadsafe(stop.set)

    async with server:
        # Not in the main thread, where Spark would replace our SIGINT handler.
        session = msgspec.structs.replace(settings.session, streams=not settings.once)
        spark = await asyncio.to_thread(start_spark, session)
        try:
            supervisor.start(spark, on_end)
            await _until_started(supervisor, stop)
            if settings.session.is_local and not settings.once:
                await asyncio.to_thread(release_start_up_memory, spark)
            server.announce()
            await stop.wait()
            await asyncio.to_thread(supervisor.stop, settings.stop_s)
        finally:
            await asyncio.to_thread(close_session, spark)
    if failed := supervisor.failed:
        raise JobsFailed({view.name: view.last_error or "" for view in failed})


async def _until_started(supervisor: QuerySupervisor, stop: asyncio.Event) -> None:
    while not stop.is_set() and any(view.status is QueryStatus.STARTING for view in supervisor.views):
        await pause(_POLL_S)


class PipelineView(msgspec.Struct, frozen=True):
    """The streaming jobs of this process."""

    master: str
    queries: list[QueryView]


def run_app(supervisor: QuerySupervisor, metrics: Metrics, settings: RunSettings) -> App:
    """Return the HTTP API of the jobs, which is read-only."""

    @route("GET", "/api/pipeline", summary="List the streaming jobs: batches, rows, throughput, lag and failures.")
    def pipeline(_: Call[NoQuery, NoBody]) -> PipelineView:
        return PipelineView(settings.session.master, supervisor.views)

    async def streaming() -> CheckResult:
        troubled = [f"{view.name} is {view.status.lower()}" for view in supervisor.views if view.status not in _HEALTHY]
        return CheckResult(not troubled, ", ".join(troubled) or "all jobs run")

    metrics.register(ProgressCollector(supervisor.progresses))
    probes = Probes(metrics, {"streaming": streaming})
    is_local = is_loopback(settings.host)
    if not is_local and not settings.token:
        return probes
    return probes.wrap(ApiApp(RouteTable(*routes_of(pipeline)), RequestGuard("" if is_local else settings.token)))

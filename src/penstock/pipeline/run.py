"""One process that runs streaming jobs: Spark, its supervisor and their HTTP surface, until a signal or their end."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from pyspark.sql import SparkSession

from penstock.edge.clock import pause
from penstock.http.server.server import HttpServer, stop_signal
from penstock.ops.telemetry.metrics import Metrics
from penstock.pipeline.errors import JobsFailed
from penstock.pipeline.metrics import BatchTimes
from penstock.pipeline.progress import QueryStatus
from penstock.pipeline.run_app import run_app
from penstock.pipeline.session import SessionSettings, close_session, open_session
from penstock.pipeline.streaming_job import StreamingJob
from penstock.pipeline.supervision import Supervisor

_LOOK_S = 0.05


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which Spark, where progress is kept, where it listens, and how long a stop may take."""

    session: SessionSettings
    checkpoint: str
    once: bool = False
    host: str = "127.0.0.1"
    port: int = 8083
    stop_s: float = 30.0


async def run_pipeline(
    jobs: Sequence[StreamingJob],
    settings: RunSettings,
    start_spark: Callable[[SessionSettings], SparkSession] = open_session,
) -> None:
    """Run the jobs until SIGINT, SIGTERM or, with `once`, their end; JobsFailed if one will not run any more."""
    metrics = Metrics("pipeline")
    supervisor = Supervisor(jobs, settings.checkpoint, BatchTimes(metrics), once=settings.once)
    server = HttpServer(run_app(supervisor, metrics, settings.session.master), settings.host, settings.port)
    stop = stop_signal(server)
    loop = asyncio.get_running_loop()

    def tell_end() -> None:
        loop.call_soon_threadsafe(stop.set)

    async with server:
        # Not in the main thread: Spark would put its own handler in the place of ours for SIGINT.
        session = msgspec.structs.replace(settings.session, streams=not settings.once)
        spark = await asyncio.to_thread(start_spark, session)
        try:
            supervisor.start(spark, tell_end)
            await _until_started(supervisor, stop)
            print(f"listening on {server.url}", flush=True)
            await stop.wait()
            await asyncio.to_thread(supervisor.stop, settings.stop_s)
        finally:
            await asyncio.to_thread(close_session, spark)
    if failed := supervisor.failed:
        raise JobsFailed({view.name: view.last_error or "" for view in failed})


async def _until_started(supervisor: Supervisor, stop: asyncio.Event) -> None:
    while not stop.is_set() and any(view.status is QueryStatus.STARTING for view in supervisor.views):
        await pause(_LOOK_S)

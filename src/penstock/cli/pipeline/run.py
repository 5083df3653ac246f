"""`penstock pipeline run`, `fan-out` and `dispatch`: streaming jobs, all in one Spark application or one alone."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config
from penstock.cli.parameters import (
    Conf,
    DatabaseUrl,
    DataDir,
    DispatchQueue,
    KeepDays,
    Lake,
    Master,
    Once,
    ProbeHost,
    ProcessEndpoint,
    port_option,
)
from penstock.cli.pipeline.options import checkpoint_of, database_of, lake_of, session_settings

if TYPE_CHECKING:
    from penstock.events.fan_out.spark import FannedOut
    from penstock.ops.config import Config
    from penstock.spark.supervisor import StreamingJob

RUN_EXAMPLES = examples(
    "penstock pipeline run --data ./penstock-data --queue http://127.0.0.1:9324/000000000000/dispatch.fifo",
    "penstock pipeline run --only fan-out,facts --once",
    "penstock pipeline run --master spark://spark:7077 --database postgresql://penstock@db/penstock "
    "--queue https://sqs.eu-west-1.amazonaws.com/123456789012/dispatch.fifo",
)
FAN_OUT_EXAMPLES = examples(
    "penstock pipeline fan-out --data ./penstock-data",
    "penstock pipeline fan-out --once --database postgresql://penstock@db/penstock --master spark://spark:7077",
)
DISPATCH_EXAMPLES = examples(
    "penstock pipeline dispatch --data ./penstock-data --queue http://127.0.0.1:9324/000000000000/dispatch.fifo",
    "penstock pipeline dispatch --once --database postgresql://penstock@db/penstock --master spark://spark:7077 "
    "--queue https://sqs.eu-west-1.amazonaws.com/123456789012/dispatch.fifo",
)


class StreamCommand(StrEnum):
    """The streaming jobs."""

    FAN_OUT = "fan-out"
    DISPATCH = "dispatch"
    FACTS = "facts"


def run(
    ctx: typer.Context,
    only: Annotated[
        str, typer.Option(metavar="JOBS", help="Only these jobs: fan-out, dispatch, facts, separated by commas.")
    ] = "",
    once: Once = False,
    data: DataDir = None,
    database: DatabaseUrl = None,
    queue: DispatchQueue = "",
    endpoint: ProcessEndpoint = "",
    lake: Lake = "",
    keep_days: KeepDays = None,
    checkpoint: Annotated[
        str, typer.Option(metavar="DIR", help="Where jobs record their progress; else pipeline.checkpoint.")
    ] = "",
    master: Master = "",
    conf: Conf = None,
    port: Annotated[int | None, port_option("health and metrics", "ports.pipeline", 8083)] = None,
    host: ProbeHost = "127.0.0.1",
) -> None:
    """Run the streaming jobs in one Spark application, and restart a job that fails.

    SIGINT or SIGTERM lets the running micro-batches finish first. Without --data or --database, the data directory or
    the database of the configuration is used.
    """
    from penstock.http.server import run as run_service
    from penstock.spark.pipeline import RunSettings, run_pipeline

    config = load_config(ctx)
    streams = Streams(
        config=config,
        data=data,
        database=database,
        queue=queue,
        endpoint=endpoint,
        lake=lake,
        keep_days=keep_days,
        once=once,
    )
    settings = RunSettings(
        session=session_settings(config, master, conf),
        checkpoint=checkpoint or checkpoint_of(config, data),
        once=once,
        host=host,
        port=given_or(port, config.ports.pipeline),
        token=config.api.token,
        stop_s=config.pipeline.stop_s,
    )
    wanted = chosen(only, dispatches=config.scheduler.enabled)
    run_service(run_pipeline([streams.job(stream) for stream in wanted], settings))


def fan_out(
    ctx: typer.Context,
    once: Once = False,
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: DataDir = None,
) -> None:
    """Create the jobs of events that were published with the setting jobs.fan_out = "pipeline".

    Each event gets one job for every subscription that matches it at that moment. The command may be stopped at any
    time and started again: no event is skipped, and none gets a job twice.
    """
    streams = Streams(config=load_config(ctx), data=data, database=database, once=once, reports_batches=True)
    _run_alone(streams, StreamCommand.FAN_OUT, master, conf)


def dispatch(
    ctx: typer.Context,
    queue: DispatchQueue = "",
    endpoint: ProcessEndpoint = "",
    once: Once = False,
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: DataDir = None,
) -> None:
    """Publish pending jobs to the queue, in order per group: the scheduler with Spark as its engine.

    It shares a lease with `penstock serve scheduler`, so that only one of them publishes. It may be stopped or killed
    at any time and started again: nothing is lost, and the queue gets every job once.
    """
    streams = Streams(config=load_config(ctx), data=data, database=database, queue=queue, endpoint=endpoint, once=once)
    _run_alone(streams, StreamCommand.DISPATCH, master, conf)


def chosen(only: str, *, dispatches: bool = True) -> list[StreamCommand]:
    """Return the jobs that were named, each once; all if none was, but dispatch only if it may publish."""
    every = [stream for stream in StreamCommand if dispatches or stream is not StreamCommand.DISPATCH]
    names = dict.fromkeys(name.strip() for name in only.split(",") if name.strip())
    try:
        return [StreamCommand(name) for name in names] or every
    except ValueError as error:
        known = ", ".join(StreamCommand)
        raise typer.BadParameter(f"{error.args[0].split()[0]} is not a streaming job: there are {known}") from None


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Makes streaming jobs on one database."""

    config: "Config"
    data: Path | None
    database: str | None
    queue: str = ""
    endpoint: str = ""
    lake: str = ""
    keep_days: int | None = None
    once: bool = False
    reports_batches: bool = False
    """Whether fan-out prints a line for each batch."""

    def job(self, stream: StreamCommand) -> "StreamingJob":
        """Return one of the jobs."""
        makers = {
            StreamCommand.FAN_OUT: self._fan_out,
            StreamCommand.DISPATCH: self._dispatch,
            StreamCommand.FACTS: self._facts,
        }
        return makers[stream]()

    def _fan_out(self) -> "StreamingJob":
        from penstock.events.fan_out.spark import FanOutJob, FanOutSettings

        options = self.config.pipeline
        settings = FanOutSettings(
            most_rows=options.max_rows_per_batch,
            few_rows=options.few_events,
            trigger_ms=options.trigger_ms,
            once=self.once,
        )
        on_batch = _report_batch if self.reports_batches else _report_nothing
        return FanOutJob(database_of(self.config, self.data, self.database), settings, on_batch)

    def _facts(self) -> "StreamingJob":
        from penstock.history.lake.facts_job import FactsJob, FactsSettings

        options = self.config.pipeline
        settings = FactsSettings(
            lake=lake_of(self.config, self.data, self.lake),
            most_rows=options.max_rows_per_batch,
            keep_days=given_or(self.keep_days, options.keep_days),
            once=self.once,
        )
        return FactsJob(database_of(self.config, self.data, self.database), settings)

    def _dispatch(self) -> "StreamingJob":
        from penstock.cli.serve.events_database import jobs_database
        from penstock.edge.node import process_ids
        from penstock.events.dispatch import scheduler_settings
        from penstock.events.dispatch.spark.leader import LeaseSettings
        from penstock.events.dispatch.spark.messages import Destination, DispatchSettings
        from penstock.events.dispatch.spark.query import DispatchQuery
        from penstock.events.dispatch.spark.round import DispatchRounds

        options = self.config.scheduler
        if not options.enabled:
            raise typer.BadParameter("scheduler.enabled is false, so nothing may be published: set it to true")
        queue = self.queue or options.queue
        if not queue:
            raise typer.BadParameter(
                "dispatch needs a queue: give --queue URI, set scheduler.queue, or leave it out by --only fan-out,facts"
            )
        rounds = DispatchRounds(
            database=database_of(self.config, self.data, self.database),
            destination=Destination(
                queue_uri=queue,
                endpoint=self.endpoint or options.endpoint,
                secrets=jobs_database(self.config, self.data, self.database, listen=False).secrets,
                pool=options.pool,
                queue_per_pool=options.queue_per_pool,
            ),
            settings=DispatchSettings(scheduler=scheduler_settings(options), few_lanes=self.config.pipeline.few_lanes),
        )
        lease = LeaseSettings(
            standby=options.standby or "off", ttl_s=options.lease_ttl_s, renew_s=options.lease_renew_s
        )
        return DispatchQuery(rounds, lease, once=self.once, ids=process_ids(self.config.node.id))


def _run_alone(streams: Streams, stream: StreamCommand, master: str, conf: list[str] | None) -> None:
    import asyncio

    from penstock.spark.pipeline import RunSettings, run_pipeline

    config = streams.config
    settings = RunSettings(
        session=session_settings(config, master, conf, app_name=f"penstock-{stream}"),
        checkpoint=checkpoint_of(config, streams.data),
        once=streams.once,
        # A free one: several jobs may run beside each other, each in a process of its own.
        port=0,
        stop_s=config.pipeline.stop_s,
    )
    asyncio.run(run_pipeline([streams.job(stream)], settings))


def _report_nothing(_: "FannedOut") -> None:
    """Leave the output to the other jobs of the application."""


def _report_batch(done: "FannedOut") -> None:
    if done.events:
        damaged = f", {done.set_aside} damaged events set aside" if done.set_aside else ""
        name = "small batch" if done.batch_id is None else f"batch {done.batch_id}"
        typer.echo(f"{name}: {done.events} events, {done.jobs} jobs{damaged}")

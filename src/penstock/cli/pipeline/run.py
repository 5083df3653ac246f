"""`penstock pipeline run`: all streaming jobs in one Spark application.

The streaming jobs that `penstock pipeline run` runs together, made as the command line and the configuration say.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config, port_option
from penstock.cli.pipeline.options import (
    Conf,
    Data,
    DatabaseUrl,
    Lake,
    Master,
    checkpoint_of,
    database_of,
    lake_of,
    session_settings,
)

if TYPE_CHECKING:
    from penstock.ops.config import Config
    from penstock.spark.supervision import StreamingJob


class Stream(StrEnum):
    """The streaming jobs."""

    FAN_OUT = "fan-out"
    DISPATCH = "dispatch"
    FACTS = "facts"


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Makes streaming jobs on one database."""

    config: "Config"
    data: Path | None
    database: str | None
    queue: str = ""
    endpoint: str = ""
    lake: str = ""
    once: bool = False

    def job(self, stream: Stream) -> "StreamingJob":
        """One of them."""
        makers = {Stream.FAN_OUT: self._fan_out, Stream.DISPATCH: self._dispatch, Stream.FACTS: self._facts}
        return makers[stream]()

    def _fan_out(self) -> "StreamingJob":
        from penstock.events.fan_out.spark import FanOutJob, FanOutSettings

        options = self.config.pipeline
        settings = FanOutSettings(most_rows=options.max_rows_per_batch, trigger_ms=options.trigger_ms, once=self.once)
        return FanOutJob(database_of(self.config, self.data, self.database), settings)

    def _facts(self) -> "StreamingJob":
        from penstock.history.lake.job import FactsJob, FactsSettings

        lake = lake_of(self.config, self.data, self.lake)
        settings = FactsSettings(lake=lake, most_rows=self.config.pipeline.max_rows_per_batch, once=self.once)
        return FactsJob(database_of(self.config, self.data, self.database), settings)

    def _dispatch(self) -> "StreamingJob":
        from penstock.cli.serve.events_database import jobs_database
        from penstock.edge.node import process_ids
        from penstock.events.dispatch.settings import scheduler_settings
        from penstock.events.dispatch.spark import DispatchJob, LeaseSettings
        from penstock.events.dispatch.spark_messages import Destination, DispatchSettings
        from penstock.events.dispatch.spark_round import Rounds

        options = self.config.scheduler
        queue = self.queue or options.queue
        if not queue:
            raise typer.BadParameter(
                "dispatch needs a queue: give --queue URI, set scheduler.queue, or leave it out by --only fan-out,facts"
            )
        rounds = Rounds(
            database=database_of(self.config, self.data, self.database),
            destination=Destination(
                queue_uri=queue,
                endpoint=self.endpoint or options.endpoint,
                secrets=jobs_database(self.config, self.data, self.database, listen=False).secrets,
                pool=options.pool,
            ),
            settings=DispatchSettings(scheduler=scheduler_settings(options)),
        )
        lease = LeaseSettings(
            standby=options.standby or "off", ttl_s=options.lease_ttl_s, renew_s=options.lease_renew_s
        )
        return DispatchJob(rounds, lease, once=self.once, ids=process_ids(self.config.node.id))


EXAMPLES = examples(
    "penstock pipeline run --data ./penstock-data --queue http://127.0.0.1:9324/000000000000/dispatch.fifo",
    "penstock pipeline run --only fan-out,facts --once",
    "penstock pipeline run --master spark://spark:7077 --database postgresql://penstock@db/penstock "
    "--queue https://sqs.eu-west-1.amazonaws.com/123456789012/dispatch.fifo",
)


def run(
    ctx: typer.Context,
    only: Annotated[
        str, typer.Option(help="Some of the jobs: fan-out, dispatch, facts, separated by commas.", metavar="JOBS")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Go through what waits now, and end.")] = False,
    data: Data = None,
    database: DatabaseUrl = None,
    queue: Annotated[
        str, typer.Option(help="The queue that dispatch publishes to; else scheduler.queue.", metavar="URI")
    ] = "",
    endpoint: Annotated[
        str, typer.Option(help="The process endpoint that the router calls; else scheduler.endpoint.", metavar="URL")
    ] = "",
    lake: Lake = "",
    checkpoint: Annotated[
        str, typer.Option(help="Where progress is written down; else pipeline.checkpoint.", metavar="DIR")
    ] = "",
    master: Master = "",
    conf: Conf = None,
    port: Annotated[int | None, port_option("health and metrics", "ports.pipeline", 8083)] = None,
    host: Annotated[str, typer.Option(help="Address of health and metrics; loopback only.")] = "127.0.0.1",
) -> None:
    """Run the streaming jobs in one Spark application, and start again what fails.

    SIGINT or SIGTERM lets the running micro-batches end first. Without --data or --database the data directory or the
    database of the configuration is used.
    """
    from penstock.http.server.server import run as run_service
    from penstock.spark.run import RunSettings, run_pipeline

    config = load_config(ctx)
    streams = Streams(config=config, data=data, database=database, queue=queue, endpoint=endpoint, lake=lake, once=once)
    settings = RunSettings(
        session=session_settings(config, master, conf),
        checkpoint=checkpoint or checkpoint_of(config, data),
        once=once,
        host=host,
        port=given_or(port, config.ports.pipeline),
        stop_s=config.pipeline.stop_s,
    )
    run_service(run_pipeline([streams.job(stream) for stream in chosen(only)], settings))


def chosen(only: str) -> list[Stream]:
    """The jobs that were named, each once; all if none was."""
    names = dict.fromkeys(name.strip() for name in only.split(",") if name.strip())
    try:
        return [Stream(name) for name in names] or list(Stream)
    except ValueError as error:
        known = ", ".join(Stream)
        raise typer.BadParameter(f"{error.args[0].split()[0]} is no streaming job: there are {known}") from None

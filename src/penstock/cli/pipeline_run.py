"""`penstock pipeline run`: all streaming jobs in one Spark application."""

from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config, port_option
from penstock.cli.pipeline_options import Conf, Data, DatabaseUrl, Lake, Master, checkpoint_of, session_settings
from penstock.cli.pipeline_streams import Stream, Streams

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

"""`penstock pipeline dispatch`: pending jobs to the queue."""

from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.pipeline.options import Conf, Data, DatabaseUrl, Master, checkpoint_of, session_settings
from penstock.cli.pipeline.run import Stream, Streams

EXAMPLES = examples(
    "penstock pipeline dispatch --data ./penstock-data --queue http://127.0.0.1:9324/000000000000/dispatch.fifo",
    "penstock pipeline dispatch --once --database postgresql://penstock@db/penstock --master spark://spark:7077 "
    "--queue https://sqs.eu-west-1.amazonaws.com/123456789012/dispatch.fifo",
)


def dispatch(
    ctx: typer.Context,
    queue: Annotated[
        str, typer.Option(help="The queue to publish to; else the setting scheduler.queue.", metavar="URI")
    ] = "",
    endpoint: Annotated[
        str, typer.Option(help="The process endpoint that the router calls; else scheduler.endpoint.", metavar="URL")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Publish what may go now, and end.")] = False,
    master: Master = "",
    conf: Conf = None,
    database: DatabaseUrl = None,
    data: Data = None,
) -> None:
    """Publish pending jobs to the queue, in order per group: the scheduler with Spark as its engine.

    It leads by the same lease as `penstock serve scheduler`, so that of all of them one publishes. It may be stopped,
    or killed, at any time and started again: nothing is lost, and the queue has every job once.
    """
    import asyncio

    from penstock.spark.run import RunSettings, run_pipeline

    config = load_config(ctx)
    streams = Streams(config=config, data=data, database=database, queue=queue, endpoint=endpoint, once=once)
    run = RunSettings(
        session=session_settings(config, master, conf, app_name="penstock-dispatch"),
        checkpoint=checkpoint_of(config, data),
        once=once,
        # A free one: several jobs may run beside each other, each in a process of its own.
        port=0,
        stop_s=config.pipeline.stop_s,
    )
    asyncio.run(run_pipeline([streams.job(Stream.DISPATCH)], run))

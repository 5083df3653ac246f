"""`penstock up`: everything on one machine."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.output import print_table

if TYPE_CHECKING:
    from penstock.machine.parts import Engine
    from penstock.machine.supervisor import Part

EXAMPLES = examples(
    "penstock up",
    "penstock up --data /var/lib/penstock --http 8080 --sqs 9324 --pubsub 8085",
)


class EngineChoice(StrEnum):
    """What makes jobs of events and publishes them; auto is Spark where it can run."""

    AUTO = "auto"
    SPARK = "spark"
    INLINE = "inline"


EngineOption: TypeAlias = Annotated[EngineChoice, typer.Option(help="What makes jobs of events and publishes them.")]


def up(
    ctx: typer.Context,
    data: Annotated[Path | None, typer.Option(help="Where everything is kept.", metavar="DIR")] = None,
    http: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API.")] = 8080,
    sqs: Annotated[int, typer.Option(min=0, max=65535, help="Port of the SQS server.")] = 9324,
    pubsub: Annotated[int, typer.Option(min=0, max=65535, help="Port of the Pub/Sub API.")] = 8085,
    router: Annotated[int, typer.Option(min=0, max=65535, help="Port of the router's API.")] = 8081,
    pipeline: Annotated[int, typer.Option(min=0, max=65535, help="Port of the pipeline's progress.")] = 8083,
    engine: EngineOption = EngineChoice.AUTO,
) -> None:
    """Everything on one machine: API and web page, SQS server, router, Pub/Sub, Spark. Ctrl-C stops it, nothing lost.

    With --engine spark, which is the default where Java 17 and PySpark are, the Spark pipeline makes jobs of events and
    publishes them; with inline the API's process does both, which needs less memory.

    A port of 0 is any free one. Everything listens on loopback, and deliveries may go there unless the setting
    egress.allow says otherwise. A part that dies is started again.
    """
    import uvloop

    from penstock.machine.parts import LOOPBACK, Ports, parts_of

    config = load_config(ctx)
    directory = data or config.data.dir
    environment = dict(os.environ)
    if not config.egress.allow:
        environment["PENSTOCK_EGRESS__ALLOW"] = LOOPBACK
    ports = Ports(http=http, sqs=sqs, pubsub=pubsub, router=router, pipeline=pipeline)
    uvloop.run(_run(parts_of(directory, ports, environment, chosen_engine(engine)), directory))


def chosen_engine(choice: EngineChoice) -> "Engine":
    """The engine to run; SparkUnavailable if Spark was asked for and cannot run."""
    from penstock.machine.parts import Engine
    from penstock.pipeline.errors import SparkUnavailable
    from penstock.pipeline.requirements import require_spark

    if choice is EngineChoice.INLINE:
        return Engine.INLINE
    try:
        require_spark()
    except SparkUnavailable as error:
        if choice is EngineChoice.SPARK:
            raise
        typer.echo(f"without Spark, with --engine inline: {error.message}", err=True)
        return Engine.INLINE
    return Engine.SPARK


async def _run(parts: "list[Part]", directory: Path) -> None:
    import asyncio
    import signal

    from penstock.machine.supervisor import Supervisor

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    typer.echo(f"starting {', '.join(part.name for part in parts)}; data in {directory}", err=True)
    async with Supervisor(parts, lambda line: typer.echo(line, err=True)) as supervisor:
        rows = [[part.name, supervisor.addresses[part.name], part.purpose] for part in parts]
        print_table(["part", "address", "for"], rows)
        typer.echo("ready; Ctrl-C stops everything", err=True)
        await stop.wait()
        typer.echo("stopping", err=True)

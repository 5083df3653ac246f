"""`penstock up`: everything on one machine."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.output import print_table

if TYPE_CHECKING:
    from penstock.machine.supervisor import Part

EXAMPLES = examples(
    "penstock up",
    "penstock up --data /var/lib/penstock --http 8080 --sqs 9324 --pubsub 8085",
)


class Engine(StrEnum):
    """What makes jobs of events and publishes them."""

    INLINE = "inline"


def up(
    ctx: typer.Context,
    data: Annotated[Path | None, typer.Option(help="Where everything is kept.", metavar="DIR")] = None,
    http: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API.")] = 8080,
    sqs: Annotated[int, typer.Option(min=0, max=65535, help="Port of the SQS server.")] = 9324,
    pubsub: Annotated[int, typer.Option(min=0, max=65535, help="Port of the Pub/Sub API.")] = 8085,
    router: Annotated[int, typer.Option(min=0, max=65535, help="Port of the router's API.")] = 8081,
    engine: Annotated[Engine, typer.Option(help="What makes jobs of events and publishes them.")] = Engine.INLINE,
) -> None:
    """Everything on one machine: API and scheduler, SQS server, router, Pub/Sub. Ctrl-C stops it with nothing lost.

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
    ports = Ports(http=http, sqs=sqs, pubsub=pubsub, router=router)
    uvloop.run(_run(parts_of(directory, ports, environment), directory))


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

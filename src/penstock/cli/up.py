"""`penstock up`: everything on one machine."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config, options_of
from penstock.cli.output import print_table
from penstock.cli.parameters import DataDir, NodeName, port_option

if TYPE_CHECKING:
    from penstock.ops.config import Config
    from penstock.ops.part_process import SupervisedPart
    from penstock.ops.parts import Engine, NodeRole
    from penstock.ops.supervisor import Supervisor

EXAMPLES = examples(
    "penstock up",
    "penstock up --data /var/lib/penstock --http 8080 --sqs 9324 --pubsub 8085",
    "penstock up --data /var/lib/penstock --database postgresql://penstock@127.0.0.1/penstock",
    "penstock up --data /var/lib/penstock --database postgresql://penstock@db/penstock --node a --advertise 10.0.0.1",
)

_TOKEN_BYTES = 32
_KEEP_TIME_S = 1.0
CLOCK_NAME = "clock"


class EngineChoice(StrEnum):
    """What creates the jobs of events and publishes them; auto is Spark where it can run."""

    AUTO = "auto"
    SPARK = "spark"
    INLINE = "inline"


EngineOption: TypeAlias = Annotated[
    EngineChoice, typer.Option(help="What creates the jobs of events and publishes them.")
]


def up(
    ctx: typer.Context,
    data: DataDir = None,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="PostgreSQL for events and jobs, instead of a file; else data.database."),
    ] = None,
    http: Annotated[int | None, port_option("the API and the web page", "http.port", 8080)] = None,
    sqs: Annotated[int | None, port_option("the SQS server", "ports.sqs", 9324)] = None,
    pubsub: Annotated[int | None, port_option("the Pub/Sub API", "ports.pubsub", 8085)] = None,
    router: Annotated[int | None, port_option("the router's API", "ports.router", 8081)] = None,
    pipeline: Annotated[int | None, port_option("the pipeline's progress", "ports.pipeline", 8083)] = None,
    engine: EngineOption = EngineChoice.AUTO,
    node: NodeName = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            show_default=False,
            help="Host name or address at which the other nodes reach this machine; else the setting cluster.host.",
        ),
    ] = None,
) -> None:
    """Run everything on this machine, until Ctrl-C stops it.

    It starts the API with the web page, the SQS server, the Pub/Sub API, the router and the Spark pipeline. They stop
    in order, and nothing is lost. A part that dies or hangs is restarted. A second Ctrl-C does not wait for them.

    With --engine spark, the default where Java 17 and PySpark are installed, the Spark pipeline creates the jobs of
    events and publishes them. With inline, the API's process does both, which needs less memory.

    Everything listens on loopback, except that the API listens where the setting http.host says. Deliveries may go to
    loopback if the API listens there too and has no keys, else to what the setting egress.allow says; never to the
    parts themselves. Where the API has keys, the SQS server accepts requests only if they are signed, with the key of
    AWS's variables in the environment of this command, or one of the file sqs.credentials.

    With a database, events and jobs are in PostgreSQL; queues, the lake and the secret that signs tokens stay in the
    data directory.

    With --node, queues and topics are in PostgreSQL too, and this machine is one of several that share it. Each of them
    serves everything; one of them schedules, and another takes over when it ends. With --advertise the SQS server
    accepts signed requests only. Spark needs pipeline.lake and pipeline.checkpoint in a place that all nodes reach;
    else the engine is inline.
    """
    import uvloop

    from penstock.edge.clock import CLOCK_FILE
    from penstock.edge.randomness import random_bytes
    from penstock.events.process import auth_secrets
    from penstock.http.server import is_loopback
    from penstock.ops.config import LogFormat
    from penstock.ops.parts import API_TOKEN, AUTH_SECRET, DENY_PORTS, LOG_FORMAT, LOOPBACK, Ports, parts_key, parts_of
    from penstock.queues.sqs.request import PARTS_KEY

    config = load_config(ctx)
    directory = data or config.data.dir
    _check_room(directory)
    environment = {**os.environ, CLOCK_FILE: str(directory.absolute() / CLOCK_NAME)}
    if config.log.format is LogFormat.AUTO:
        # The parts write into pipes; a person reads them on a terminal.
        environment[LOG_FORMAT] = LogFormat.HUMAN if sys.stderr.isatty() else LogFormat.JSON
    has_keys = bool(config.api.token or config.api.keys)
    if not config.egress.allow and not has_keys and is_loopback(config.http.host):
        environment["PENSTOCK_EGRESS__ALLOW"] = LOOPBACK
    # Of the user's own, as the parts see only the variable.
    environment[DENY_PORTS] = ",".join(map(str, config.egress.deny_ports))
    if has_keys:
        # The parts call each other too, and of keys only the hashes are known.
        environment[API_TOKEN] = config.api.token or random_bytes(_TOKEN_BYTES).hex()
    if has_keys or config.sqs.credentials or given_or(advertise, config.cluster.host):
        environment[PARTS_KEY] = config.sqs.parts_key or parts_key(environment, random_bytes(_TOKEN_BYTES).hex())
    database = given_or(database, config.data.database)
    chosen = _engine_of_node(engine, config) if given_or(node, config.cluster.node) else engine
    role = _node_role(config, node, advertise, database)
    if database and role is None:
        # Parts with a database on a server look for no file with the secret, as they might be on several machines.
        environment[AUTH_SECRET] = auth_secrets(config.jobs, directory)[0].decode()
    ports = Ports(
        http=given_or(http, config.http.port),
        sqs=given_or(sqs, config.ports.sqs),
        pubsub=given_or(pubsub, config.ports.pubsub),
        router=given_or(router, config.ports.router),
        pipeline=given_or(pipeline, config.ports.pipeline),
        pubsub_nodes=config.ports.pubsub_nodes if role is not None and role.host else 0,
    )
    options = options_of(ctx).as_arguments()
    endpoint = config.scheduler.chosen_endpoint
    parts = parts_of(directory, ports, environment, chosen_engine(chosen), options, database, endpoint, role)
    uvloop.run(_run(parts, directory))


def _node_role(config: "Config", node: str | None, advertise: str | None, database: str) -> "NodeRole | None":
    """Return this machine as a node; None if it is not one."""
    from penstock.ops.parts import NodeRole

    name, host = given_or(node, config.cluster.node), given_or(advertise, config.cluster.host)
    if not name:
        if advertise is not None:
            raise typer.BadParameter("--advertise needs --node NAME")
        return None
    if not database:
        raise typer.BadParameter("--node needs a database that all nodes share: --database postgresql://…")
    from penstock.cluster.nodes import identify

    identity = identify(database, name)
    secret = config.jobs.auth_secret or identity.secret
    return NodeRole(name=name, host=host, number=identity.number, secret=secret, ttl_s=config.cluster.ttl_s)


def _engine_of_node(choice: EngineChoice, config: "Config") -> EngineChoice:
    """Return inline where Spark's state would be on one machine only; refuse if Spark was asked for."""
    if choice is EngineChoice.INLINE or (config.pipeline.lake and config.pipeline.checkpoint):
        return choice
    missing = "set pipeline.lake and pipeline.checkpoint to places that all nodes reach"
    if choice is EngineChoice.SPARK:
        raise typer.BadParameter(f"Spark on several nodes needs shared storage: {missing}")
    typer.echo(f"using --engine inline: for Spark, {missing}", err=True)
    return EngineChoice.INLINE


def _check_room(directory: Path) -> None:
    """Refuse a directory that cannot be written; only warn of a full disk, as emptying queues needs little room."""
    from penstock.domain.errors import FailedPrecondition
    from penstock.ops.doctor import Status, data_directory, disk_space

    place, room = data_directory(directory), disk_space(directory)
    if place.status is Status.FAILED:
        raise FailedPrecondition(f"{place.detail}; {place.remedy}, or give --data")
    if room.status is Status.FAILED:
        typer.echo(f"the disk of {directory} is nearly full: {room.detail}; {room.remedy}, or give --data", err=True)


def chosen_engine(choice: EngineChoice) -> "Engine":
    """Return the engine to run; SparkUnavailable if Spark was requested and cannot run."""
    from penstock.ops.parts import Engine
    from penstock.spark.errors import SparkUnavailable
    from penstock.spark.requirements import require_spark

    if choice is EngineChoice.INLINE:
        return Engine.INLINE
    try:
        require_spark()
    except SparkUnavailable as error:
        if choice is EngineChoice.SPARK:
            raise SparkUnavailable(f"{error.message}, or use `--engine inline`, which needs no Spark") from error
        typer.echo(f"Spark is not available, using --engine inline, which needs none: {error.message}", err=True)
        return Engine.INLINE
    return Engine.SPARK


@asynccontextmanager
async def _kept_time(directory: Path) -> AsyncIterator[None]:
    """Go on with the time of the last run, and keep it for parts that start again and for the next run."""
    import asyncio

    from penstock.edge.clock import KeptTime
    from penstock.edge.pause import pause
    from penstock.edge.private_files import private_directory

    private_directory(directory)
    kept = KeptTime(directory / CLOCK_NAME)
    if not kept.resume():
        typer.echo(
            "the clock is more than a day behind the last run: jobs of then wait until their times come; set the clock",
            err=True,
        )
    kept.keep()

    async def keep_on() -> None:
        while True:
            await pause(_KEEP_TIME_S)
            kept.keep()

    keeping = asyncio.create_task(keep_on())
    try:
        yield
    finally:
        keeping.cancel()


async def _run(parts: "list[SupervisedPart]", directory: Path) -> None:
    """Run the parts until a signal; the second one does not wait for them."""
    import asyncio
    import signal
    from contextlib import suppress

    from penstock.ops.supervisor import Supervisor

    def report(line: str) -> None:
        with suppress(OSError):  # no one reads it; the parts must run on
            typer.echo(line, err=True)

    supervisor = Supervisor(parts, report)
    running = asyncio.create_task(_supervise(supervisor, parts, directory))

    def stop() -> None:
        if not running.cancelling():
            typer.echo("stopping", err=True)
            running.cancel()
        else:
            supervisor.kill()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    with suppress(asyncio.CancelledError):
        await running


async def _supervise(supervisor: "Supervisor", parts: "list[SupervisedPart]", directory: Path) -> None:
    typer.echo(f"starting {', '.join(part.name for part in parts)}; data in {directory}", err=True)
    async with _kept_time(directory), supervisor:
        rows = [[part.name, supervisor.addresses[part.name], part.purpose] for part in parts]
        print_table(["part", "address", "for"], rows)
        typer.echo("ready; Ctrl-C stops everything", err=True)
        await supervisor.failure()

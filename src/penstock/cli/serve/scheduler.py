"""`penstock serve scheduler`: the dispatch scheduler."""

from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config
from penstock.cli.parameters import DatabaseUrl, DataDir, DispatchQueue, ProbeHost, ProcessEndpoint, port_option

EXAMPLES = examples(
    "penstock serve scheduler --data ./penstock-data --queue http://127.0.0.1:9324/000000000000/dispatch.fifo",
    "penstock serve scheduler --database postgresql://penstock@db/penstock --standby sql "
    "--queue https://sqs.eu-west-1.amazonaws.com/123456789012/dispatch.fifo",
    "penstock serve scheduler --queue 'sqlite:///var/lib/penstock/queue.db?queue=dispatch'",
)


def scheduler(
    ctx: typer.Context,
    data: DataDir = None,
    database: DatabaseUrl = None,
    queue: DispatchQueue = "",
    endpoint: ProcessEndpoint = "",
    pool: Annotated[
        str, typer.Option(help="Router pool of jobs that name no pool; else scheduler.pool.", metavar="CODE")
    ] = "",
    standby: Annotated[
        str,
        typer.Option(
            help="How one of several schedulers is chosen: off, sql or redis://…; else scheduler.standby.",
            metavar="HOW",
        ),
    ] = "",
    port: Annotated[int | None, port_option("health and metrics", "ports.scheduler", 8082)] = None,
    host: ProbeHost = "127.0.0.1",
) -> None:
    """Run the dispatch scheduler: it publishes pending jobs to the queue, in order per group.

    Without --data or --database, the data directory or the database of the configuration is used.
    """
    from penstock.cli.serve.events_database import jobs_database
    from penstock.events.dispatch import (
        DispatchQueue,
        Pointers,
        SchedulerServerSettings,
        scheduler_role,
        serve_scheduler,
    )
    from penstock.events.process import AuthTokens
    from penstock.http.server import run

    config = load_config(ctx)
    options = config.scheduler
    if not (queue or options.queue):
        raise typer.BadParameter("give --queue URI, or set scheduler.queue")
    settings = SchedulerServerSettings(
        role=scheduler_role(options, standby),
        host=host,
        port=given_or(port, config.ports.scheduler),
        node_id=config.node.id,
    )
    jobs, secrets = jobs_database(config, data, database, listen=True)
    dispatch_queue = DispatchQueue(jobs, queue or options.queue, per_pool=options.queue_per_pool)
    pointers = Pointers(endpoint or options.endpoint, AuthTokens(secrets), pool or options.pool)
    run(serve_scheduler(jobs, dispatch_queue, pointers, settings))

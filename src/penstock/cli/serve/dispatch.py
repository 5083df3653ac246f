"""`penstock serve dispatch`: the API and the scheduler in one process."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config, port_option
from penstock.cli.serve.api import PipelineAddress, QueuesAddress, RouterAddress, web_front

EXAMPLES = examples(
    "penstock serve dispatch --data ./penstock-data --queue http://127.0.0.1:9324/000000000000/dispatch.fifo",
    "penstock serve dispatch --database postgresql://penstock@db/penstock --queue nats://nats:4222/jobs/router",
)


def dispatch(
    ctx: typer.Context,
    queue: Annotated[
        str, typer.Option(help="The queue to publish to; else the setting scheduler.queue.", metavar="URI")
    ] = "",
    dead_letters: Annotated[
        str,
        typer.Option(
            help="Pub/Sub server whose topics take what is given up; else jobs.dead_letters.", metavar="HOST:PORT"
        ),
    ] = "",
    data: Annotated[Path | None, typer.Option(help="Directory of the embedded database.", metavar="DIR")] = None,
    database: Annotated[str | None, typer.Option(help="PostgreSQL instead of the embedded one.", metavar="URL")] = None,
    port: Annotated[int | None, port_option("the API", "http.port", 8080)] = None,
    host: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="Address to listen on, else http.host; other than loopback needs api.token or api.keys.",
        ),
    ] = None,
    router: RouterAddress = "",
    queues: QueuesAddress = "",
    pipeline: PipelineAddress = "",
) -> None:
    """The API, the web page and the scheduler in one process: on SQLite the shortest way from event to queue.

    Without --data or --database the data directory or the database of the configuration is used.
    """
    from penstock.cli.serve.events_database import api_settings, jobs_database
    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.events.dispatch.settings import scheduler_settings
    from penstock.events.dispatch.with_api import serve_api_with_scheduler
    from penstock.http.server.server import run
    from penstock.queues.open import publisher_for

    config = load_config(ctx)
    uri = queue or config.scheduler.queue
    if not uri:
        raise typer.BadParameter("give --queue URI, or set scheduler.queue")
    repository, secrets = jobs_database(config, data, database, listen=True)
    api = api_settings(
        config,
        secrets,
        host=given_or(host, config.http.host),
        port=given_or(port, config.http.port),
        queue_uri=uri,
        dead_letters=dead_letters,
    )
    run(
        serve_api_with_scheduler(
            repository,
            publisher_for(uri),
            SystemClock(),
            process_ids(config.node.id),
            api,
            scheduler_settings(config.scheduler),
            web_front(config, router, queues, pipeline),
        )
    )

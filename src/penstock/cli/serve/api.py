"""`penstock serve api`: the API of events, subscriptions and jobs, and the process endpoint.

Where the web page finds the parts it shows; shared by the commands that serve it.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config, port_option

if TYPE_CHECKING:
    from penstock.console.front import WebFront
    from penstock.console.upstream import Sign
    from penstock.ops.config import Config

RouterAddress: TypeAlias = Annotated[
    str, typer.Option("--router", help="Router that the web page shows; else api.router.", metavar="URL")
]
QueuesAddress: TypeAlias = Annotated[
    str, typer.Option("--queues", help="SQS server that the web page shows; else api.queues.", metavar="URL")
]
PipelineAddress: TypeAlias = Annotated[
    str, typer.Option("--pipeline", help="Pipeline that the web page shows; else api.pipeline.", metavar="URL")
]


def web_front(config: "Config", router: str, queues: str, pipeline: str) -> "WebFront":
    """The web page, with the addresses given or configured."""
    from penstock.console.front import WebFront

    queues = queues or config.api.queues
    return WebFront.at(
        router=router or config.api.router,
        queues=queues,
        pipeline=pipeline or config.api.pipeline,
        router_token=config.router.api_token or config.api.token,
        sign=_sign(queues),
    )


def _sign(queues: str) -> "Sign | None":
    from penstock.cli.queue.connection import find_signer
    from penstock.edge.clock import SystemClock

    signer = find_signer(queues, os.environ)
    clock = SystemClock()
    return None if signer is None else lambda request: signer.signed(request, clock.now_ms())


EXAMPLES = examples(
    "penstock serve api --data ./penstock-data",
    "penstock serve api --database postgresql://penstock@db/penstock --host 0.0.0.0",
    "penstock serve api --queue http://127.0.0.1:9324/000000000000/dispatch.fifo --port 8080",
)


def api(
    ctx: typer.Context,
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
    queue: Annotated[
        str,
        typer.Option(
            help="The queue that /api/router/config names to routers; else the setting scheduler.queue.", metavar="URI"
        ),
    ] = "",
    dead_letters: Annotated[
        str,
        typer.Option(
            help="Pub/Sub server whose topics take what is given up; else jobs.dead_letters.", metavar="HOST:PORT"
        ),
    ] = "",
    router: RouterAddress = "",
    queues: QueuesAddress = "",
    pipeline: PipelineAddress = "",
) -> None:
    """The API of events, subscriptions and jobs, the web page, and the endpoint that routers bring jobs to.

    Without --data or --database the data directory or the database of the configuration is used.
    """
    from penstock.cli.serve.events_database import api_settings, jobs_database
    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.events.api.server import serve_api
    from penstock.http.server.server import run

    config = load_config(ctx)
    place = jobs_database(config, data, database, listen=False)
    uri = queue or config.scheduler.queue
    settings = api_settings(
        config,
        place.secrets,
        host=given_or(host, config.http.host),
        port=given_or(port, config.http.port),
        queue_uri=uri,
        dead_letters=dead_letters,
    )
    front = web_front(config, router, queues, pipeline)
    run(serve_api(place.repository, SystemClock(), process_ids(config.node.id), settings, front))

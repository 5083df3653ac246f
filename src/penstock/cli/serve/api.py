"""`penstock serve api` and `serve dispatch`: the API with its web page, alone or with the scheduler."""

import os
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config
from penstock.cli.parameters import ApiHost, DatabaseUrl, DataDir, DispatchQueue, PubsubServer, port_option

if TYPE_CHECKING:
    from penstock.console import Sign, WebFront
    from penstock.ops.config import Config

API_EXAMPLES = examples(
    "penstock serve api --data ./penstock-data",
    "penstock serve api --database postgresql://penstock@db/penstock --host 0.0.0.0",
    "penstock serve api --queue http://127.0.0.1:9324/000000000000/dispatch.fifo --port 8080",
)
DISPATCH_EXAMPLES = examples(
    "penstock serve dispatch --data ./penstock-data --queue http://127.0.0.1:9324/000000000000/dispatch.fifo",
    "penstock serve dispatch --database postgresql://penstock@db/penstock --queue nats://nats:4222/jobs/router",
)

ApiPort: TypeAlias = Annotated[int | None, port_option("the API", "http.port", 8080)]
RouterAddress: TypeAlias = Annotated[
    str, typer.Option("--router", metavar="URL", help="Router that the web page shows; else api.router.")
]
QueuesAddress: TypeAlias = Annotated[
    str,
    typer.Option(
        "--queues", metavar="URL", help="SQS server of sqs: targets, which the web page shows; else api.queues."
    ),
]
PipelineAddress: TypeAlias = Annotated[
    str, typer.Option("--pipeline", metavar="URL", help="Pipeline that the web page shows; else api.pipeline.")
]


def api(
    ctx: typer.Context,
    data: DataDir = None,
    database: DatabaseUrl = None,
    port: ApiPort = None,
    host: ApiHost = None,
    queue: Annotated[
        str,
        typer.Option(metavar="URI", help="The queue in /api/router/config; else the setting scheduler.queue."),
    ] = "",
    topics: PubsubServer = "",
    router: RouterAddress = "",
    queues: QueuesAddress = "",
    pipeline: PipelineAddress = "",
) -> None:
    """Serve the API of events, subscriptions and jobs, the web page, and the endpoint that routers bring jobs to.

    Without --data or --database, the data directory or the database of the configuration is used.
    """
    from penstock.cli.serve.events_database import api_settings, jobs_database
    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.events.api import serve_api
    from penstock.http.server import run

    config = load_config(ctx)
    repository, secrets = jobs_database(config, data, database, listen=False)
    settings = api_settings(
        config,
        secrets,
        host=given_or(host, config.http.host),
        port=given_or(port, config.http.port),
        queue_uri=queue or config.scheduler.queue,
        topics=topics,
        queues=queues,
        data=data,
    )
    front = _web_front(config, router, queues, pipeline)
    run(serve_api(repository, SystemClock(), process_ids(config.node.id), settings, front))


def dispatch(
    ctx: typer.Context,
    queue: DispatchQueue = "",
    topics: PubsubServer = "",
    data: DataDir = None,
    database: DatabaseUrl = None,
    port: ApiPort = None,
    host: ApiHost = None,
    router: RouterAddress = "",
    queues: QueuesAddress = "",
    pipeline: PipelineAddress = "",
) -> None:
    """Serve the API and the web page, and run the scheduler, in one process: on SQLite the shortest way to the queue.

    With scheduler.enabled = false only the API works; with scheduler.standby one of several schedulers does. Jobs come
    to the process endpoint of this process, unless scheduler.endpoint names another one.

    Without --data or --database, the data directory or the database of the configuration is used.
    """
    from penstock.cli.serve.events_database import api_settings, jobs_database
    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.events.dispatch import DispatchQueue, scheduler_role, serve_api_with_scheduler
    from penstock.http.server import run

    config = load_config(ctx)
    uri = queue or config.scheduler.queue
    if not uri:
        raise typer.BadParameter("give --queue URI, or set scheduler.queue")
    repository, secrets = jobs_database(config, data, database, listen=True)
    settings = api_settings(
        config,
        secrets,
        host=given_or(host, config.http.host),
        port=given_or(port, config.http.port),
        queue_uri=uri,
        topics=topics,
        queues=queues,
        data=data,
    )
    front = _web_front(config, router, queues, pipeline)
    per_pool = config.scheduler.queue_per_pool
    run(
        serve_api_with_scheduler(
            repository,
            DispatchQueue(repository, uri, per_pool=per_pool, removed=front.pools_changed),
            SystemClock(),
            process_ids(config.node.id),
            settings,
            scheduler_role(config.scheduler),
            front,
        )
    )


def _web_front(config: "Config", router: str, queues: str, pipeline: str) -> "WebFront":
    """Return the web page, with the addresses given or configured."""
    from penstock.console import WebFront

    queues = queues or config.api.queues
    return WebFront.at(
        router=router or config.api.router,
        queues=queues,
        pipeline=pipeline or config.api.pipeline,
        router_token=config.router.api_token or config.api.token,
        sign=_sign(queues),
        frames=config.api.portal_frames,
    )


def _sign(queues: str) -> "Sign | None":
    from penstock.cli.queue.connection import find_signer
    from penstock.edge.clock import SystemClock, wall_ms

    signer = find_signer(queues, os.environ)
    clock = SystemClock()
    return None if signer is None else lambda request: signer.signed(request, wall_ms(clock))

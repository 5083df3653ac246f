"""`penstock serve router`: the message router.

Several processes that run one service together: they start and stop as one.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli.failures import FAILURE
from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config
from penstock.cli.parameters import PubsubServer, host_option, port_option

if TYPE_CHECKING:
    from penstock.events.process import LocalProcessing
    from penstock.http.server import Certificate
    from penstock.ops.config import Config
    from penstock.router import PermitSource, RouterSettings

EXAMPLES = examples(
    "penstock serve router --config router.json",
    "penstock serve router --config https://platform.example/router.json,local.toml --port 8081",
    "penstock serve router --config router.json --workers 4",
    "penstock serve router --config http://127.0.0.1:8080/api/router/config --data ./penstock-data",
    "penstock serve router --config router.json --standby sql --database postgresql://penstock@db/penstock",
)


def router(
    ctx: typer.Context,
    config: Annotated[
        str,
        typer.Option(
            metavar="URL|FILE,…",
            envvar="MESSAGE_ROUTER_CONFIG_URL",
            help="Files or URLs with the pools and queues; of several, the first wins.",
        ),
    ] = "",
    port: Annotated[int | None, port_option("the router's API", "ports.router", 8081)] = None,
    host: Annotated[str, host_option("router.api_token or api.keys")] = "127.0.0.1",
    standby: Annotated[
        str, typer.Option(help="How one of several routers is chosen to consume: off, sql or redis://…", metavar="HOW")
    ] = "off",
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Deliver the jobs of this data directory in this process, not by HTTP."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The same for PostgreSQL; with --standby sql it also holds the lease."),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="The same for the data directory or the database of the configuration.")
    ] = False,
    topics: PubsubServer = "",
    workers: Annotated[
        int,
        typer.Option(min=1, max=64, metavar="N", help="Processes that share the work; each has its own API and port."),
    ] = 1,
) -> None:
    """Run the message router: it takes messages from queues and delivers them by HTTP, in order per group.

    Pools and queues come from --config, else from the setting router.config; they may change while the router runs.

    A job's message goes to the API, which sends the webhook. With --data or --database the router sends the webhooks of
    these jobs itself, which costs less, and with --local those of the configured database. It needs the API's
    jobs.auth_secret, or the file of it in the data directory.
    """
    from penstock.http.server import run
    from penstock.router import router_settings

    tree = load_config(ctx)
    sources = tuple(place.strip() for place in config.split(",") if place.strip())
    settings = router_settings(
        tree, sources=sources, host=host, port=given_or(port, tree.ports.router), workers=workers
    )
    if settings.enabled and not settings.config:
        raise typer.BadParameter("give --config URL or FILE, or set router.config")
    jobs = LocalJobs(data, database, topics, local)
    if standby != "off":
        _serve_standby(tree, settings, standby, jobs)
    elif workers == 1:
        run(_served(tree, settings, jobs))
    elif not run_workers(workers, partial(_serve_worker, tree, settings, jobs)):
        raise typer.Exit(FAILURE)


class LocalJobs(NamedTuple):
    """The jobs whose deliveries the router makes itself, if any, and where those go that it gives up."""

    data: Path | None
    database: str | None
    topics: str
    of_configuration: bool = False

    def local(self, config: "Config") -> "LocalProcessing | None":
        """Return what makes these deliveries."""
        from penstock.cli.serve.events_database import local_processing

        if self.data is None and self.database is None and not self.of_configuration:
            return None
        return local_processing(config, self.data, self.database, self.topics)

    def permits(self, config: "Config") -> "PermitSource | None":
        """Return where the routers of all nodes take the permits of rate limits; None if this is not a node."""
        from penstock.cli.options import database_url

        url = database_url(config, self.data, self.database)
        if not config.cluster.node or not url:
            return None
        from penstock.cluster.nodes import RatePermits

        return RatePermits(url)


def _served(
    config: "Config", settings: "RouterSettings", jobs: LocalJobs, worker: int = 0
) -> "Coroutine[Any, Any, None]":
    from penstock.router import serve_router

    return serve_router(settings, worker, local=jobs.local(config), permits=jobs.permits(config))


def _serve_standby(config: "Config", settings: "RouterSettings", standby: str, jobs: LocalJobs) -> None:
    from penstock.cli.serve.events_database import jobs_repository
    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.http.server import run
    from penstock.router import serve_standby_router

    if settings.workers > 1:
        raise typer.BadParameter("--standby goes with one worker; run one router per lease")
    lease = config.scheduler
    # A router that only shares a lease has no need of the secret.
    shares_secret = jobs.data is not None or bool(config.jobs.auth_secret)
    run(
        serve_standby_router(
            settings,
            standby,
            jobs_repository(config, jobs.data, jobs.database, listen=False),
            SystemClock(),
            process_ids(config.node.id),
            ttl_s=lease.lease_ttl_s,
            renew_s=lease.lease_renew_s,
            local=jobs.local(config) if shares_secret else None,
        )
    )


def _serve_worker(config: "Config", settings: "RouterSettings", jobs: LocalJobs, worker: int) -> None:
    """Run one of several processes; it sets up logging by itself."""
    from penstock.domain.errors import PenstockError
    from penstock.http.server import run
    from penstock.ops.telemetry import configure_logging

    configure_logging(config.log.format, config.log.level)
    try:
        run(_served(config, settings, jobs, worker))
    except PenstockError as error:
        typer.echo(f"error: worker {worker}: {error.message}", err=True)
        raise SystemExit(FAILURE) from error


def run_workers(count: int, work: Callable[[int], None]) -> bool:
    """Run `work(0)` to `work(count - 1)`, each in its own process; return whether all of them succeeded.

    Signals to stop go to every worker. When one ends by itself, the others are stopped.
    """
    from penstock.http.server import used_certificate

    # A fork would take this process's locks and threads along in whatever state they are.
    context = multiprocessing.get_context("spawn")
    workers: list[BaseProcess] = [
        context.Process(target=_worker, args=(work, n, used_certificate()), name=f"worker {n}") for n in range(count)
    ]

    sent: set[int] = set()

    def forward(number: int, _: FrameType | None) -> None:
        sent.add(number)
        for worker in workers:
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for worker in workers:
            worker.start()
        wait([worker.sentinel for worker in workers])
        # A worker that is stopping already would take a second signal as a request to stop at once.
        if not sent:
            forward(signal.SIGTERM, None)
        for worker in workers:
            worker.join()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return all(worker.exitcode == 0 for worker in workers)


def _worker(work: Callable[[int], None], number: int, certificate: "Certificate | None") -> None:
    from penstock.http.server import use_certificate

    # Out of the terminal's group: Ctrl-C reaches only the parent, which passes it on once.
    os.setpgrp()
    parent = multiprocessing.parent_process()
    assert parent is not None
    Thread(target=_stop_with, args=(parent.sentinel,), daemon=True).start()
    use_certificate(certificate)
    work(number)


def _stop_with(parent: int) -> None:
    """Stop this process when its parent has ended, for whatever reason."""
    wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)

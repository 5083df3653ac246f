"""`penstock serve router`: the message router.

Several processes that run one service together: they start and stop as one.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import FAILURE
from penstock.cli.family import examples
from penstock.cli.options import given_or, load_config
from penstock.cli.parameters import host_option, port_option

if TYPE_CHECKING:
    from penstock.ops.config import Config, LogSettings
    from penstock.router import RouterSettings

EXAMPLES = examples(
    "penstock serve router --config router.json",
    "penstock serve router --config https://platform.example/router.json,local.toml --port 8081",
    "penstock serve router --config router.json --workers 4",
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
    database: Annotated[
        str | None, typer.Option(help="PostgreSQL that holds the standby's lease; else data.database.", metavar="URL")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(min=1, max=64, metavar="N", help="Processes that share the work; each has its own API and port."),
    ] = 1,
) -> None:
    """Run the message router: it takes messages from queues and delivers them by HTTP, in order per group.

    Pools and queues come from --config, else from the setting router.config; they may change while the router runs.
    """
    from penstock.http.server import run
    from penstock.router import router_settings, serve_router

    tree = load_config(ctx)
    sources = tuple(place.strip() for place in config.split(",") if place.strip())
    settings = router_settings(
        tree, sources=sources, host=host, port=given_or(port, tree.ports.router), workers=workers
    )
    if settings.enabled and not settings.config:
        raise typer.BadParameter("give --config URL or FILE, or set router.config")
    if standby != "off":
        _serve_standby(tree, settings, standby, database)
    elif workers == 1:
        run(serve_router(settings))
    elif not run_workers(workers, partial(_serve_worker, settings, tree.log)):
        raise typer.Exit(FAILURE)


def _serve_standby(config: "Config", settings: "RouterSettings", standby: str, database: str | None) -> None:
    from penstock.cli.serve.events_database import jobs_repository
    from penstock.edge.clock import SystemClock
    from penstock.edge.node import process_ids
    from penstock.http.server import run
    from penstock.router import serve_standby_router

    if settings.workers > 1:
        raise typer.BadParameter("--standby goes with one worker; run one router per lease")
    lease = config.scheduler
    run(
        serve_standby_router(
            settings,
            standby,
            jobs_repository(config, None, database, listen=False),
            SystemClock(),
            process_ids(config.node.id),
            ttl_s=lease.lease_ttl_s,
            renew_s=lease.lease_renew_s,
        )
    )


def _serve_worker(settings: "RouterSettings", log: "LogSettings", worker: int) -> None:
    """Run one of several processes; it sets up logging by itself."""
    from penstock.domain.errors import PenstockError
    from penstock.http.server import run
    from penstock.ops.telemetry import configure_logging
    from penstock.router import serve_router

    configure_logging(log.format, log.level)
    try:
        run(serve_router(settings, worker))
    except PenstockError as error:
        typer.echo(f"error: worker {worker}: {error.message}", err=True)
        raise SystemExit(FAILURE) from error


def run_workers(count: int, work: Callable[[int], None]) -> bool:
    """Run `work(0)` to `work(count - 1)`, each in its own process; return whether all of them succeeded.

    Signals to stop go to every worker. When one ends by itself, the others are stopped.
    """
    # A fork would take this process's locks and threads along in whatever state they are.
    context = multiprocessing.get_context("spawn")
    workers: list[BaseProcess] = [
        context.Process(target=_worker, args=(work, n), name=f"worker {n}") for n in range(count)
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


def _worker(work: Callable[[int], None], number: int) -> None:
    # Out of the terminal's group: Ctrl-C reaches only the parent, which passes it on once.
    os.setpgrp()
    parent = multiprocessing.parent_process()
    assert parent is not None
    Thread(target=_stop_with, args=(parent.sentinel,), daemon=True).start()
    work(number)


def _stop_with(parent: int) -> None:
    """Stop this process when its parent has ended, for whatever reason."""
    wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)

"""`penstock simulate`: search simulated histories for one in which a promise does not hold."""

import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import typer

from penstock.cli.failures import FAILURE, INTERRUPTED
from penstock.cli.family import examples, family
from penstock.cli.options import options_of
from penstock.cli.output import print_json
from penstock.cli.parameters import AsJson

_SHOW_EVERY_S = 2.0

app = family(
    "Search simulated histories for one that breaks a promise.",
    "penstock simulate router --seeds 1000",
    "penstock --log-level info simulate router --first 4711 --seeds 1",
)


@app.callback()
def simulate() -> None:
    """Search simulated histories for one in which a promise does not hold."""


class Ran(NamedTuple):
    """The result of one seed; `finding` is empty if every promise held."""

    seed: int
    messages: int = 0
    deliveries: int = 0
    simulated_s: float = 0.0
    finding: str = ""


@app.command(
    epilog=examples(
        "penstock simulate router",
        "penstock simulate router --seeds 100000 --first 5000 --jobs 8",
        "penstock --log-level info simulate router --first 4711 --seeds 1",
    )
)
def router(
    ctx: typer.Context,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Seeds to run.")] = 500,
    first: Annotated[int, typer.Option(min=0, metavar="N", help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, max=1024, metavar="N", help="Processes to use.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Run the real router with simulated queues, endpoints and faults, on virtual time.

    A seed decides everything that happens: the same seed gives the same history. The exit code is 1 if a promise was
    broken; the output names the seed. The router logs nothing unless --log-level is given.
    """
    level = options_of(ctx).log_level
    began_s, ran, interrupted = time.perf_counter(), list[Ran](), False
    try:
        with _runs(range(first, first + seeds), min(jobs, seeds), level) as runs:
            for each in _shown(runs, seeds):
                ran.append(each)
    except KeyboardInterrupt:
        interrupted = True
    _report(ran, seeds, time.perf_counter() - began_s, interrupted=interrupted, as_json=as_json)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(each.finding for each in ran):
        raise typer.Exit(FAILURE)


@contextmanager
def _runs(seeds: Sequence[int], jobs: int, log_level: str | None) -> Iterator[Iterable[Ran]]:
    import logging
    from multiprocessing import get_context

    if jobs > 1:
        with get_context("spawn").Pool(jobs, _set_up_process, (log_level,)) as pool:
            yield pool.imap_unordered(run_seed, seeds)
        return
    _set_up_logs(log_level)
    try:
        yield map(run_seed, seeds)
    finally:
        logging.disable(logging.NOTSET)


def _set_up_process(log_level: str | None) -> None:
    # Ctrl-C reaches the whole group of processes; only the first one handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _set_up_logs(log_level)


def _set_up_logs(log_level: str | None) -> None:
    import logging

    from penstock.ops.telemetry import configure_logging

    if log_level is None:
        logging.disable(logging.CRITICAL)
    else:
        configure_logging(level=log_level)


def run_seed(seed: int) -> Ran:
    """Run one seed; anything that goes wrong is its finding."""
    from penstock.testing.simulation.history import InvariantBroken
    from penstock.testing.simulation.world import simulate_router

    try:
        history = simulate_router(seed)
    except InvariantBroken as broken:
        return Ran(seed, finding=str(broken))
    except Exception as error:
        return Ran(seed, finding=f"seed {seed}: {type(error).__name__}: {error}")
    return Ran(seed, history.messages, len(history.deliveries), history.passed_s)


def _shown(runs: Iterable[Ran], seeds: int) -> Iterator[Ran]:
    """Yield the runs; print findings immediately and progress every few seconds, on standard error."""
    shown_s = time.perf_counter()
    for done, each in enumerate(runs, start=1):
        if each.finding:
            typer.echo(each.finding, err=True)
        if time.perf_counter() - shown_s >= _SHOW_EVERY_S:
            shown_s = time.perf_counter()
            typer.echo(f"{done:,} of {seeds:,} seeds", err=True)
        yield each


def _report(ran: Sequence[Ran], seeds: int, took_s: float, *, interrupted: bool, as_json: bool) -> None:
    failed = sorted(each for each in ran if each.finding)
    figures = {
        "seeds": len(ran),
        "failed": [{"seed": each.seed, "finding": each.finding} for each in failed],
        "messages": sum(each.messages for each in ran),
        "deliveries": sum(each.deliveries for each in ran),
        "simulated_hours": round(sum(each.simulated_s for each in ran) / 3600, 1),
        "took_s": round(took_s, 1),
        "interrupted": interrupted,
    }
    if as_json:
        print_json(figures)
        return
    typer.echo(
        f"{len(ran):,} of {seeds:,} seeds in {took_s:.1f} s: {figures['messages']:,} messages, "
        f"{figures['deliveries']:,} deliveries, {figures['simulated_hours']:,} simulated hours"
    )
    typer.echo(f"{len(failed):,} failed" if failed else "every promise held")
    for each in failed:
        typer.echo(f"  penstock --log-level info simulate router --first {each.seed} --seeds 1   # {each.finding}")

"""`penstock bench`: measure a part of Penstock on this machine."""

import json
from typing import Annotated

import typer

from penstock.cli.family import examples, family
from penstock.cli.output import AsJson, print_table

app = family(
    "Measure a part of Penstock on this machine.",
    "penstock bench broker",
    "penstock bench broker --rounds 3 --json",
)

Rounds = Annotated[int, typer.Option(min=1, max=99, help="Runs of each measurement; the median is told.")]


@app.callback()
def bench() -> None:
    """Measure a part of Penstock on this machine."""


@app.command(epilog=examples("penstock bench broker", "penstock bench broker --json | tail -n 1"))
def broker(rounds: Rounds = 5, as_json: AsJson = False) -> None:
    """The broker: in-memory rates, durable sends, cost of depth, memory, idle CPU.

    What is being measured is told on standard error; the last line of `--json` is one JSON object.
    """
    from penstock.bench.broker import bench_broker

    _print(bench_broker(rounds, _tell), as_json)


@app.command(epilog=examples("penstock bench sqs", "penstock bench sqs --rounds 1 --deep 100000 --json | tail -n 1"))
def sqs(
    rounds: Rounds = 5,
    deep: Annotated[int, typer.Option(min=1000, help="Messages waiting when the cost of depth is measured.")] = (
        1_000_000
    ),
    as_json: AsJson = False,
) -> None:
    """The SQS server, durable on SQLite with fsync: sends, batches, receives, FIFO, partitions, throttle, wake-up.

    The load comes from a lean client in a process of its own; the last line of `--json` is one JSON object.
    """
    from penstock.bench.sqs import bench_sqs

    _print(bench_sqs(rounds, deep, _tell), as_json)


def _tell(step: str) -> None:
    typer.echo(f"measuring {step}", err=True)


def _print(figures: object, as_json: bool) -> None:
    import msgspec

    values = {name: round(value, 4) for name, value in msgspec.to_builtins(figures).items()}
    if as_json:
        typer.echo(json.dumps(values))
    else:
        print_table(["figure", "value"], [[name, f"{value:,}"] for name, value in values.items()])

"""`penstock bench`: measure a part of Penstock on this machine."""

import json
from typing import Annotated

import typer

from penstock.cli.family import examples, family
from penstock.cli.output import print_table
from penstock.cli.parameters import AsJson
from penstock.cli.tools.end_to_end import EXAMPLES, end_to_end

app = family(
    "Measure Penstock, or a part of it, on this machine.",
    "penstock bench broker",
    "penstock bench broker --rounds 3 --json",
    "penstock bench end-to-end --quick",
)

Rounds = Annotated[
    int, typer.Option(min=1, max=99, metavar="N", help="Runs of each measurement; the median is reported.")
]


@app.callback()
def bench() -> None:
    """Measure Penstock, or a part of it, on this machine."""


@app.command(epilog=examples("penstock bench broker", "penstock bench broker --json | tail -n 1"))
def broker(rounds: Rounds = 5, as_json: AsJson = False) -> None:
    """Measure the broker: in-memory rates, durable sends, cost of depth, memory, idle CPU.

    Progress is shown on standard error; the last line of `--json` is one JSON object.
    """
    from penstock.tools.bench.broker import bench_broker

    _print(bench_broker(rounds, _show_step), as_json)


@app.command(epilog=examples("penstock bench sqs", "penstock bench sqs --rounds 1 --deep 100000 --json | tail -n 1"))
def sqs(
    rounds: Rounds = 5,
    deep: Annotated[
        int, typer.Option(min=1000, metavar="N", help="Messages waiting while the cost of depth is measured.")
    ] = (1_000_000),
    as_json: AsJson = False,
) -> None:
    """Measure the SQS server on SQLite with fsync: sends, batches, receives, FIFO, partitions, throttle, wake-up.

    The load comes from a lean client in another process; the last line of `--json` is one JSON object.
    """
    from penstock.tools.bench.sqs import bench_sqs

    _print(bench_sqs(rounds, deep, _show_step), as_json)


@app.command(epilog=examples("penstock bench router", "penstock bench router --rounds 3 --json | tail -n 1"))
def router(rounds: Rounds = 5, as_json: AsJson = False) -> None:
    """Measure the router: deliveries per second, and those of a bare client; memory, fairness, idle CPU.

    The receiver runs in another process; the last line of `--json` is one JSON object.
    """
    from penstock.tools.bench.router import bench_router

    _print(bench_router(rounds, _show_step), as_json)


@app.command(epilog=examples("penstock bench pubsub", "penstock bench pubsub --rounds 1 --json | tail -n 1"))
def pubsub(rounds: Rounds = 5, as_json: AsJson = False) -> None:
    """Measure the Pub/Sub API, in memory and on SQLite with fsync: publish, streaming pull and ack, idle CPU.

    The load comes from Google's own client, and for requests of 100 from a lean one, in another process.
    """
    from penstock.tools.bench.pubsub import bench_pubsub

    _print(bench_pubsub(rounds, _show_step), as_json)


@app.command(
    epilog=examples(
        "penstock bench scheduler", "penstock bench scheduler --rounds 1 --finished 100000 --json | tail -n 1"
    )
)
def scheduler(
    rounds: Rounds = 3,
    finished: Annotated[
        int, typer.Option(min=1000, metavar="N", help="Finished jobs in the table while polls are measured.")
    ] = 1_000_000,
    database: Annotated[
        str | None, typer.Option(help="PostgreSQL to measure; else a temporary one.", metavar="URL")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the scheduler: jobs per second to the queue, latency of one job, cost of finished jobs.

    Queue, router and process endpoint run in other processes; the last line of `--json` is one JSON object.
    """
    from penstock.tools.bench.scheduler import bench_scheduler

    _print(bench_scheduler(rounds, finished, database, _show_step), as_json)


@app.command(
    epilog=examples(
        "penstock bench pipeline",
        "penstock bench pipeline --attempts 1000000 --json | tail -n 1",
        "penstock bench pipeline --rounds 1 --events 2000 --jobs 2000 --attempts 20000 --replays 1000 --facts 2000 "
        "--deliveries 20000 --seconds 5",
    )
)
def pipeline(
    rounds: Rounds = 3,
    events: Annotated[int, typer.Option(min=1000, metavar="N", help="Events to fan out; each gets five jobs.")] = (
        20_000
    ),
    jobs: Annotated[int, typer.Option(min=1000, metavar="N", help="Jobs to dispatch.")] = 100_000,
    attempts: Annotated[int, typer.Option(min=1000, metavar="N", help="Attempts to audit.")] = 10_000_000,
    replays: Annotated[int, typer.Option(min=100, metavar="N", help="Jobs to replay.")] = 30_000,
    facts: Annotated[int, typer.Option(min=1000, metavar="N", help="Attempts to write to a lake.")] = 300_000,
    deliveries: Annotated[
        int, typer.Option(min=1000, metavar="N", help="Deliveries in a lake that is asked in SQL.")
    ] = 10_000_000,
    seconds: Annotated[int, typer.Option(min=1, metavar="N", help="Seconds to measure the latency of events.")] = 20,
    database: Annotated[
        str | None, typer.Option(help="PostgreSQL to measure; else a temporary one.", metavar="URL")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the pipeline on Spark: fan-out, dispatch, audit, replay, lake; latency, start and memory of the JVM.

    Takes several minutes. Fan-out is compared with inserts by PostgreSQL alone. The last line of `--json` is one JSON
    object.
    """
    from penstock.spark.requirements import require_spark

    require_spark()
    from penstock.tools.bench.pipeline.pipeline import PipelineSizes, bench_pipeline

    sizes = PipelineSizes(
        events=events,
        jobs=jobs,
        attempts=attempts,
        replays=replays,
        facts=facts,
        deliveries=deliveries,
        seconds=seconds,
    )
    _print(bench_pipeline(rounds, sizes, database, _show_step), as_json)


@app.command(epilog=examples("penstock bench cluster", "penstock bench cluster --rounds 1 --json | tail -n 1"))
def cluster(
    rounds: Rounds = 3,
    database: Annotated[
        str | None, typer.Option(help="PostgreSQL server to measure on; else a temporary one.", metavar="URL")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure SQS on 1, 2 and 3 nodes and 1 and 2 databases: rates, cost of passing on, take-over, lost, doubled.

    All nodes share this machine, so compare costs, not rates. Takes two to four minutes; Ctrl-C shows the figures
    measured so far. The last line of `--json` is one JSON object.
    """
    from penstock.tools.bench.cluster.cluster import ClusterBench

    run = ClusterBench(rounds, _show_step)
    try:
        run.run(database)
    except KeyboardInterrupt as interrupt:
        _print(run.figures, as_json)
        raise typer.Exit(130) from interrupt
    _print(run.figures, as_json)


app.command("end-to-end", epilog=EXAMPLES)(end_to_end)


def _show_step(step: str) -> None:
    typer.echo(f"measuring {step}", err=True)


def _print(figures: object, as_json: bool) -> None:
    import msgspec

    values = {name: round(value, 4) for name, value in msgspec.to_builtins(figures).items()}
    if as_json:
        typer.echo(json.dumps(values))
    else:
        print_table(["figure", "value"], [[name, f"{value:,}"] for name, value in values.items()])

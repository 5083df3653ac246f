"""`penstock bench end-to-end`: events through a real `penstock up`, to a receiver."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failures import FAILURE
from penstock.cli.family import examples
from penstock.cli.output import print_table
from penstock.cli.parameters import AsJson

if TYPE_CHECKING:
    from penstock.tools.bench.end_to_end.end_to_end import Combination
    from penstock.tools.bench.end_to_end.figures import EndToEndFigures

EXAMPLES = examples(
    "penstock bench end-to-end",
    "penstock bench end-to-end --engine inline --database sqlite --json | tail -n 1",
    "penstock bench end-to-end --quick --engine inline --database sqlite",
    "penstock bench end-to-end --database postgres --database-url postgresql://penstock@127.0.0.1/penstock",
    "penstock bench end-to-end --subscriptions 1000 --slow 100 --no-isolation",
)

_SQLITE, _POSTGRES = "sqlite", "postgres"


class Engines(StrEnum):
    """The engines to measure."""

    INLINE = "inline"
    SPARK = "spark"
    BOTH = "both"


class Databases(StrEnum):
    """The databases to measure."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"
    BOTH = "both"


def end_to_end(
    engine: Annotated[Engines, typer.Option(help="The engine to measure.")] = Engines.BOTH,
    database: Annotated[Databases, typer.Option(help="The database to measure.")] = Databases.BOTH,
    database_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A PostgreSQL server on this machine; else a temporary one.")
    ] = None,
    events: Annotated[int, typer.Option(min=100, metavar="N", help="Events to publish at once.")] = 50_000,
    keys: Annotated[int, typer.Option(min=1, metavar="N", help="Keys of these events.")] = 5_000,
    calm_events: Annotated[int, typer.Option(min=10, metavar="N", help="Events to publish at a pace.")] = 1_000,
    calm_rate: Annotated[int, typer.Option(min=1, metavar="N", help="Events per second of that pace.")] = 100,
    subscriptions: Annotated[int, typer.Option(min=1, metavar="N", help="Subscriptions that share the events.")] = 1,
    slow: Annotated[int, typer.Option(min=0, metavar="N", help="How many of them answer after 5 s.")] = 0,
    isolation: Annotated[bool, typer.Option(help="Measure a quick subscriber beside bad ones.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything, for a first look.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure deliveries from the publisher to the receiver, through everything that `penstock up` runs, with fsync.

    Each combination of engine and database takes some minutes: a bare client, all events at once, some at a pace, and a
    quick subscriber beside slow, limited, failing and hanging ones. The exit code is 1 if an event was lost, reordered,
    or overlapped another one of its key. The last line of `--json` is one JSON object.
    """
    from penstock.tools.bench.end_to_end.end_to_end import EndToEndSizes, bench_end_to_end
    from penstock.tools.bench.end_to_end.phases import RushSize

    if slow >= subscriptions:
        raise typer.BadParameter("one subscription at least must not be slow", param_hint="--slow")
    share = 10 if quick else 1
    sizes = EndToEndSizes(
        rush=RushSize(events // share, max(1, keys // share), subscriptions, slow),
        calm_events=max(10, calm_events // share),
        calm_per_s=calm_rate,
        isolation_s=0 if not isolation else 2 if quick else 10,
    )
    figures: dict[str, EndToEndFigures | None] = {
        f"{each}_{place}": None for each in ("inline", "spark") for place in (_SQLITE, _POSTGRES)
    }
    for name, measured in bench_end_to_end(_combinations(engine, database), sizes, database_url, _show):
        figures[name] = measured
        if not as_json:
            _print(name, measured)
    if as_json:
        typer.echo(json.dumps(_rounded(figures)))
    if any(each is not None and each.faults.any for each in figures.values()):
        typer.echo("error: an event was lost, reordered, or overlapped another one of its key", err=True)
        raise typer.Exit(FAILURE)


def _combinations(engines: Engines, databases: Databases) -> "list[Combination]":
    from penstock.ops.parts import Engine
    from penstock.spark.requirements import require_spark
    from penstock.tools.bench.end_to_end.end_to_end import Combination

    if engines is not Engines.INLINE:
        require_spark()
    chosen = list(Engine) if engines is Engines.BOTH else [Engine(engines)]
    places = [_SQLITE, _POSTGRES] if databases is Databases.BOTH else [databases]
    return [Combination(engine, place == _POSTGRES) for engine in sorted(chosen) for place in places]


def _show(text: str) -> None:
    typer.echo(text, err=True)


def _rounded(value: object) -> object:
    import msgspec

    match msgspec.to_builtins(value):
        case float() as number:
            # JSON has no infinity.
            return round(number, 3) if number < float("inf") else None
        case dict() as members:
            return {name: _rounded(member) for name, member in members.items()}
        case list() as items:
            return [_rounded(item) for item in items]
        case other:
            return other


def _print(name: str, figures: "EndToEndFigures") -> None:
    import msgspec

    plain = msgspec.to_builtins(figures)
    by_part, neighbours, faults = (plain.pop(each) for each in ("cpu_us_by_part", "isolation", "faults"))
    rows = [[each, _text(value)] for each, value in (plain | faults).items() if value is not None]
    print_table([name, "value"], rows)
    typer.echo()
    print_table(["part", "cpu µs per delivery"], [[part, _text(value)] for part, value in by_part.items()])
    typer.echo()
    if neighbours:
        print_table(list(neighbours[0]), [[_text(value) for value in each.values()] for each in neighbours])
        typer.echo()


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"

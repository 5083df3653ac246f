"""`penstock pipeline sql`: questions to the lake."""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.output import print_json, print_table, printable
from penstock.cli.parameters import AsJson, Conf, DataDir, Lake, Master
from penstock.cli.pipeline.options import lake_of, session_settings

if TYPE_CHECKING:
    from penstock.history.lake.views import Cell

EXAMPLES = examples(
    "penstock pipeline sql",
    "penstock pipeline sql 'SELECT subscription, key, reason FROM deliveries WHERE status = 503'",
    "penstock pipeline sql 'SELECT * FROM hourly ORDER BY hour DESC' --limit 24",
    "penstock pipeline sql \"SELECT * FROM key_order WHERE key = 'customer-1' ORDER BY published\" --json",
    "penstock pipeline sql --file monthly.sql --csv > monthly.csv",
)
_ON_SCREEN = 1_000


def sql(
    ctx: typer.Context,
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", show_default=False, help="The query; without one, list tables.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, metavar="FILE", help="Read it from a file.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default=False,
            help="Rows to print at most; else 1,000 in a table, and all with --json and --csv.",
        ),
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")] = False,
    lake: Lake = "",
    master: Master = "",
    conf: Conf = None,
    data: DataDir = None,
) -> None:
    """Ask the lake in SQL: its tables, and ready views of them.

    The lake follows the database within about a minute. DESCRIBE deliveries shows the columns of a table.
    """
    config = load_config(ctx)
    if as_json and as_csv:
        raise typer.BadParameter("give one of --json and --csv")
    if query is not None and file is not None:
        raise typer.BadParameter("give a query or --file, not both")
    from penstock.history.lake.lake import open_lake
    from penstock.history.lake.views import names, rows
    from penstock.history.lake.views import query as asked
    from penstock.spark.session import spark_session

    text = query if file is None else file.read_text(encoding="utf-8")
    if text is None:
        _print(("name", "kind", "what"), iter(map(list, names())), limit, as_json=as_json, as_csv=as_csv)
        return
    if not text.strip():
        raise typer.BadParameter("the query is empty")
    with spark_session(session_settings(config, master, conf, app_name="penstock-sql")) as spark:
        result = asked(open_lake(spark, lake_of(config, data, lake)), text)
        # One more than are printed says whether there are more.
        most = limit if as_json or as_csv else (limit or _ON_SCREEN) + 1
        _print(tuple(result.columns), rows(result, most), limit, as_json=as_json, as_csv=as_csv)


def _print(
    columns: tuple[str, ...], rows: "Iterator[list[Cell]]", limit: int | None, *, as_json: bool, as_csv: bool
) -> None:
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    elif as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        found, most = list(rows), limit or _ON_SCREEN
        print_table(columns, [[printable(_text(cell)) for cell in row] for row in found[:most]])
        if len(found) > most:
            typer.echo(f"there are more than these {most:,} rows: use --limit, or --csv for all", err=True)


def _text(cell: "Cell") -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:g}" if isinstance(cell, float) and abs(cell) < 1e6 else str(cell)

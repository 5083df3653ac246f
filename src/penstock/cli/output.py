"""What commands print: tables for readers, JSON for programs."""

import json
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def print_json(value: object) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their column names, aligned; cells are never cut."""
    table = [[name.upper() for name in columns], *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

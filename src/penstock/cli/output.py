"""What commands print: tables for readers, JSON for programs."""

from collections.abc import Sequence
from datetime import UTC, datetime

import typer


def print_json(value: object) -> None:
    """Print one JSON document."""
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their column names, aligned; cells are never cut."""
    table = [[name.upper() for name in columns], *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def printable(text: str) -> str:
    """Return one line that a terminal shows as it is: text may hold line ends, or codes that move the cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def time_text(moment: datetime | int) -> str:
    """Return a time, or milliseconds since 1970, as people read it, in UTC."""
    time = datetime.fromtimestamp(moment / 1000, UTC) if isinstance(moment, int) else moment.astimezone(UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def yes_or_no(value: bool) -> str:
    """Return a yes or a no."""
    return "yes" if value else "no"

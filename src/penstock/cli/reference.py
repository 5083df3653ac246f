"""docs/reference/cli.md, made from the help of every command."""

from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.cli.family import examples

EXAMPLES = examples("penstock reference > docs/reference/cli.md")

_HEAD = """# The command line

Made by `penstock reference`; a test keeps it true. Exit codes: 0 it worked, 1 it did not (a sentence on stderr says
why), 2 it was asked in a way that cannot be understood. `--json` prints one JSON document for programs.
"""
_WIDTH = 110


def reference(
    width: Annotated[int, typer.Option(min=40, help="Characters of a line at most.")] = _WIDTH,
) -> None:
    """Print the help of every command, as Markdown."""
    typer.echo(as_markdown(width), nl=False)


def as_markdown(width: int = _WIDTH) -> str:
    """The help of every command."""
    from penstock.cli.app import app

    return "\n".join([_HEAD, *(_section(app, words, width) for words in dict.fromkeys(_commands(app, ())))])


def _commands(family: typer.Typer, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every command and family that is not hidden, as the words that call it."""
    yield words
    for command in family.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "").replace("_", "-")
        if not command.hidden:
            yield (*words, name)
    for group in family.registered_groups:
        if group.typer_instance is not None and not group.hidden:
            # A family without a name of its own adds its commands to the one above.
            below = (*words, group.name) if isinstance(group.name, str) else words
            yield from _commands(group.typer_instance, below)


def _section(app: typer.Typer, words: tuple[str, ...], width: int) -> str:
    from typer.testing import CliRunner

    shown = CliRunner().invoke(app, [*words, "--help"], prog_name="penstock", terminal_width=width)
    title = " ".join(("penstock", *words))
    return f"## {title}\n\n```text\n{shown.output.strip()}\n```\n"

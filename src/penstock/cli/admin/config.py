"""`penstock config`: show, check, init, reference."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.family import examples, family
from penstock.cli.options import options_of
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson
from penstock.domain.errors import AlreadyExists, Unavailable

app = family(
    "Show, check and write the settings.",
    "penstock config init",
    "penstock config check",
    "penstock --config other.toml config show --json",
)


@app.command(epilog=examples("penstock config show", "penstock config show --json"))
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Print the settings in force, each with the file or variable it comes from.

    Passwords and secrets are masked.
    """
    from penstock.ops.config import as_literal, as_tree, shown, trace

    loaded = trace(options_of(ctx).config_file)
    if as_json:
        print_json(as_tree(loaded.config))
        return
    rows = [
        (entry.key, as_literal(value), loaded.sources.get(entry.key, "default"))
        for entry, value in shown(loaded.config)
    ]
    print_table(("key", "value", "source"), rows)


@app.command(epilog=examples("penstock config check", "penstock --config other.toml config check"))
def check(ctx: typer.Context) -> None:
    """Check the settings, and report every problem.

    The exit code is 2 if they are invalid.
    """
    from penstock.ops.config import trace

    loaded = trace(options_of(ctx).config_file)
    given = len(loaded.sources)
    typer.echo(f"the configuration is valid: {given} {'setting' if given == 1 else 'settings'} given, others default")


@app.command(
    epilog=examples("penstock config init", "penstock config init /etc/penstock.toml", "penstock config init --force")
)
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("penstock.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a settings file with every default, explained."""
    from penstock.ops.config import as_toml

    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(as_toml())
    except FileExistsError as error:
        raise AlreadyExists(f"{file} exists; give another name, or --force to overwrite it") from error
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror or error}; give a file that can be written") from error
    typer.echo(f"wrote {file}")


@app.command(epilog=examples("penstock config reference > docs/reference/configuration.md"))
def reference() -> None:
    """Print the reference page of all settings, in Markdown."""
    from penstock.ops.config import as_reference

    typer.echo(as_reference(), nl=False)

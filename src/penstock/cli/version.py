"""`penstock version`."""

import platform

import typer

from penstock import __version__
from penstock.cli.family import examples
from penstock.cli.output import AsJson, print_json

VERSION_EXAMPLES = examples("penstock version", "penstock version --json")


def version(as_json: AsJson = False) -> None:
    """Print the version of Penstock and what it runs on."""
    facts = {"penstock": __version__, "python": platform.python_version(), "platform": platform.platform()}
    if as_json:
        print_json(facts)
    else:
        typer.echo("\n".join(f"{name} {value}" for name, value in facts.items()))

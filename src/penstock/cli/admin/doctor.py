"""`penstock doctor`.

`penstock version`.
"""

import platform

import typer

from penstock import __version__
from penstock.cli.family import examples
from penstock.cli.options import options_of
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson

EXAMPLES = examples("penstock doctor", "penstock doctor --json")


def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check that this machine can run Penstock.

    Each problem comes with a remedy. The exit code is 1 if something that Penstock needs is missing; warnings do not
    count.
    """
    from dataclasses import asdict

    from penstock.ops.doctor import Status, examine

    findings = examine(options_of(ctx).config_file)
    failed = any(finding.status is Status.FAILED for finding in findings)
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        rows = [(finding.status, finding.name, finding.sentence) for finding in findings]
        print_table(("status", "check", "found"), rows)
    if failed:
        raise typer.Exit(1)


VERSION_EXAMPLES = examples("penstock version", "penstock version --json")


def version(as_json: AsJson = False) -> None:
    """Print the version of Penstock and what it runs on."""
    facts = {"penstock": __version__, "python": platform.python_version(), "platform": platform.platform()}
    if as_json:
        print_json(facts)
    else:
        typer.echo("\n".join(f"{name} {value}" for name, value in facts.items()))

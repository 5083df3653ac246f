"""The `penstock` command: global options and the list of commands.

To add a command, write a module with its function and its `EXAMPLES`, and one `app.command` line below;
a family of commands is `app = family(...)` in its module, and one `app.add_typer` line. At the top of such a
module import only typer, `penstock.cli` and the standard library, and what the command needs inside its
function: every run of `penstock` imports all of these modules.
"""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import reference, status, up
from penstock.cli.admin import backup, doctor, keys
from penstock.cli.admin import config as config_commands
from penstock.cli.events import changes, event_types, groups, jobs, listen, pools, publish, subscriptions, topics
from penstock.cli.failures import FAILURE, FailureGroup, print_trace
from penstock.cli.family import CONTEXT, examples
from penstock.cli.options import Options
from penstock.cli.pipeline import commands as pipeline
from penstock.cli.queue import commands as queue_commands
from penstock.cli.serve import commands as serve
from penstock.cli.tools import bench, demo, simulate


class Level(StrEnum):
    """The log levels."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


app = typer.Typer(
    name="penstock",
    cls=FailureGroup,
    epilog=examples(
        "penstock demo",
        "penstock up",
        "penstock subscriptions create billing --pattern 'orders:**' --target http://127.0.0.1:9000/hook",
        "penstock publish orders:placed --key order-1 --data 7",
        "penstock --config /etc/penstock.toml config show",
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
# Help lists commands before families, each in this order: what a newcomer needs first comes first.
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("up", epilog=up.EXAMPLES)(up.up)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("publish", epilog=publish.EXAMPLES)(publish.publish)
app.command("listen", epilog=listen.EXAMPLES)(listen.listen)
app.add_typer(subscriptions.app, name="subscriptions")
app.add_typer(jobs.app, name="jobs")
app.add_typer(groups.app, name="groups")
app.add_typer(pools.app, name="pools")
app.add_typer(event_types.app, name="event-types")
app.add_typer(topics.app, name="topics")
app.add_typer(queue_commands.app, name="queue")
app.add_typer(config_commands.app, name="config")
app.add_typer(keys.app, name="keys")
app.add_typer(serve.app, name="serve")
app.command("changes", epilog=changes.EXAMPLES)(changes.changes)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(bench.app, name="bench")
app.add_typer(simulate.app, name="simulate")
app.command("backup", epilog=backup.BACKUP_EXAMPLES)(backup.backup)
app.command("restore", epilog=backup.RESTORE_EXAMPLES)(backup.restore)
app.command("reference", epilog=reference.EXAMPLES, hidden=True)(reference.reference)
app.command("version", epilog=doctor.VERSION_EXAMPLES)(doctor.version)


def main() -> None:
    """Run the command line and exit."""
    try:
        app(prog_name="penstock")
    except Exception as error:
        # A bug: the user gets one line to report, not a screen of internals.
        if "--debug" in sys.argv:
            print_trace(error)
        typer.echo(
            f"error: this is a bug in penstock: {type(error).__name__}: {error}; "
            "run again with `penstock --debug …` and report the stack trace",
            err=True,
        )
        sys.exit(FAILURE)
    finally:
        _flush_quietly()


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; without this the interpreter would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit()


@app.callback()
def penstock(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings file; else ./penstock.toml, if it exists.")
    ] = None,
    log_level: Annotated[Level | None, typer.Option(help="Overrides the setting log.level.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Ordered event delivery: publish once; every subscriber gets it, in order per key, at least once."""
    ctx.obj = Options(config_file=config, log_level=log_level, debug=debug)

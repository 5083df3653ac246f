"""From an error to what the user sees: `error: …` and an exit code, a stack trace only with --debug."""

import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from penstock.cli.options import options_of
from penstock.domain.errors import PenstockError

FAILURE = 1
USAGE = 2
INTERRUPTED = 130


class FailureGroup(TyperGroup):
    """The root of the commands: turns what they raise into a message and an exit code."""

    # Typer's Context is click's own class in some versions and a copy of it in others: no name fits both.
    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            if options_of(ctx).debug:
                print_trace(error)
            raise typer.Exit(_print(error)) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def print_trace(error: BaseException) -> None:
    """Print the stack trace of an error."""
    typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)


def _print(error: PenstockError) -> int:
    from penstock.ops.config import ConfigError

    if isinstance(error, ConfigError):
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        return USAGE
    typer.echo(f"error: {' '.join(error.message.split())}", err=True)
    return FAILURE

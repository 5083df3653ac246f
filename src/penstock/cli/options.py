"""The options before the command, and what commands get from them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from penstock.ops.config import Config

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What was given before the command's name."""

    config_file: Path | None = None
    log_level: str | None = None
    debug: bool = False

    def as_arguments(self) -> list[str]:
        """The same options for a command that this one starts."""
        config = [] if self.config_file is None else ["--config", str(self.config_file)]
        level = [] if self.log_level is None else ["--log-level", self.log_level]
        return [*config, *level, *(["--debug"] if self.debug else [])]


def port_option(what: str, setting: str, usual: int) -> Any:
    """An option for a port that is a setting, too."""
    about = f"Port of {what}; 0 takes a free one. Else the setting {setting}, {usual} unless set."
    return typer.Option(min=0, max=65535, show_default=False, help=about)


def given_or(given: T | None, configured: T) -> T:
    """What was given on the command line, else what is configured."""
    return configured if given is None else given


def options_of(ctx: typer.Context) -> Options:
    """The options of this run."""
    found = ctx.find_object(Options)
    return found if found is not None else Options()


def load_config(ctx: typer.Context) -> "Config":
    """The configuration of this run, with logging set up as it says."""
    from penstock.ops.config import load
    from penstock.ops.config.tree import LogLevel
    from penstock.ops.telemetry.logs import configure_logging

    options = options_of(ctx)
    config = load(options.config_file)
    if options.log_level is not None:
        config = replace(config, log=replace(config.log, level=LogLevel(options.log_level)))
    configure_logging(config.log.format, config.log.level)
    return config

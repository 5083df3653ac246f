"""The options before the command's name, and the configuration that commands get from them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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
        """Return the same options for a command that this one starts."""
        config = [] if self.config_file is None else ["--config", str(self.config_file)]
        level = [] if self.log_level is None else ["--log-level", self.log_level]
        return [*config, *level, *(["--debug"] if self.debug else [])]


def given_or(given: T | None, configured: T) -> T:
    """Return what was given on the command line, else what is configured."""
    return configured if given is None else given


def database_url(config: "Config", data: Path | None, database: str | None) -> str:
    """Return the URL of PostgreSQL, if one is given or configured; empty if data is kept in files of a directory."""
    if data is not None and database is not None:
        raise typer.BadParameter("give one of --data and --database")
    return database or ("" if data is not None else config.data.database)


def options_of(ctx: typer.Context) -> Options:
    """Return the options of this run."""
    found = ctx.find_object(Options)
    return found if found is not None else Options()


def load_config(ctx: typer.Context) -> "Config":
    """Load the configuration of this run, and set up logging as it says."""
    from penstock.ops.config import LogLevel, load
    from penstock.ops.telemetry import configure_logging

    options = options_of(ctx)
    config = load(options.config_file)
    if options.log_level is not None:
        config = replace(config, log=replace(config.log, level=LogLevel(options.log_level)))
    configure_logging(config.log.format, config.log.level)
    return config

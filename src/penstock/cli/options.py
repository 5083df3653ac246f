"""The options before the command, and what commands get from them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from penstock.config import Config


@dataclass(frozen=True)
class Options:
    """What was given before the command's name."""

    config_file: Path | None = None
    log_level: str | None = None
    debug: bool = False


def options_of(ctx: typer.Context) -> Options:
    """The options of this run."""
    found = ctx.find_object(Options)
    return found if found is not None else Options()


def load_config(ctx: typer.Context) -> "Config":
    """The configuration of this run, with logging set up as it says."""
    from penstock.config import load
    from penstock.config.tree import LogLevel
    from penstock.telemetry.logs import configure_logging

    options = options_of(ctx)
    config = load(options.config_file)
    if options.log_level is not None:
        config = replace(config, log=replace(config.log, level=LogLevel(options.log_level)))
    configure_logging(config.log.format, config.log.level)
    return config

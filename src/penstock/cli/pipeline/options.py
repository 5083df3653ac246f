"""The settings of `penstock pipeline` commands, from their options and the configuration."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.cli.options import database_url
from penstock.cli.parameters import pairs
from penstock.edge.private_files import private_directory

if TYPE_CHECKING:
    from penstock.ops.config import Config
    from penstock.spark.database import SparkDatabase
    from penstock.spark.session import SessionSettings


def session_settings(
    config: "Config", master: str, conf: Sequence[str] | None, *, app_name: str = "penstock"
) -> "SessionSettings":
    """Return which Spark to use."""
    from penstock.spark.session import SessionSettings

    options = config.pipeline
    settings = {key.strip(): value.strip() for key, value in pairs([*options.conf, *(conf or ())], "--conf").items()}
    return SessionSettings(app_name=app_name, master=master or options.master, conf=settings, ui=options.ui)


def database_of(config: "Config", data: Path | None, database: str | None) -> "SparkDatabase":
    """Return where jobs are kept: PostgreSQL if a URL is given or configured, else a file in the data directory."""
    from penstock.spark.database import SparkDatabase

    if url := database_url(config, data, database):
        return SparkDatabase(url)
    directory = data or config.data.dir
    private_directory(directory)
    return SparkDatabase(f"sqlite://{quote(str((directory / 'jobs.db').absolute()))}")


def checkpoint_of(config: "Config", data: Path | None) -> str:
    """Return where streaming jobs record their progress."""
    return config.pipeline.checkpoint or str((data or config.data.dir).absolute() / "pipeline" / "checkpoint")


def lake_of(config: "Config", data: Path | None, lake: str = "") -> str:
    """Return where delivery facts are kept."""
    return lake or config.pipeline.lake or str((data or config.data.dir).absolute() / "lake")

"""The options that the commands of `penstock pipeline` share, and what they make of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias
from urllib.parse import quote

import typer

if TYPE_CHECKING:
    from penstock.ops.config import Config
    from penstock.spark.database import Database
    from penstock.spark.session import SessionSettings

Master: TypeAlias = Annotated[
    str, typer.Option(help="Spark's master: local[*], spark://…, yarn, k8s://…; else pipeline.master.", metavar="URL")
]
Conf: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="A setting of Spark's; may be given several times.", metavar="KEY=VALUE")
]
DatabaseUrl: TypeAlias = Annotated[
    str | None, typer.Option("--database", help="PostgreSQL instead of the embedded one.", metavar="URL")
]
Data: TypeAlias = Annotated[Path | None, typer.Option(help="Directory of the embedded database.", metavar="DIR")]
Lake: TypeAlias = Annotated[
    str, typer.Option(help="Directory or URL of the delivery facts; else pipeline.lake.", metavar="DIR")
]


def session_settings(
    config: "Config", master: str, conf: Sequence[str] | None, *, app_name: str = "penstock"
) -> "SessionSettings":
    """Which Spark to use, as the command line and the configuration say."""
    from penstock.spark.session import SessionSettings

    options = config.pipeline
    pairs = [_pair(entry) for entry in (*options.conf, *(conf or ()))]
    return SessionSettings(app_name=app_name, master=master or options.master, conf=dict(pairs), ui=options.ui)


def database_of(config: "Config", data: Path | None, database: str | None) -> "Database":
    """Where jobs are kept: PostgreSQL if a URL is given or configured, else a file in the data directory."""
    from penstock.spark.database import Database

    if data is not None and database is not None:
        raise typer.BadParameter("give one of --data and --database")
    if url := database or ("" if data is not None else config.data.database):
        return Database(url)
    directory = data or config.data.dir
    directory.mkdir(parents=True, exist_ok=True)
    return Database(f"sqlite://{quote(str((directory / 'jobs.db').absolute()))}")


def checkpoint_of(config: "Config", data: Path | None) -> str:
    """Where streaming jobs write down how far they are."""
    return config.pipeline.checkpoint or str((data or config.data.dir).absolute() / "pipeline" / "checkpoint")


def lake_of(config: "Config", data: Path | None, lake: str = "") -> str:
    """Where delivery facts are kept."""
    return lake or config.pipeline.lake or str((data or config.data.dir).absolute() / "lake")


def _pair(entry: str) -> tuple[str, str]:
    key, equals, value = entry.partition("=")
    if not (key and equals):
        raise typer.BadParameter(f"a setting of Spark's is KEY=VALUE, not {entry!r}")
    return key.strip(), value.strip()

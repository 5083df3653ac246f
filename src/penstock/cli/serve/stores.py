"""Where a served part keeps its queues, as the command line and the configuration say."""

from pathlib import Path

import typer

from penstock.cli.options import database_url
from penstock.domain.errors import InvalidArgument
from penstock.edge.private_files import private_directory
from penstock.engine import MemoryStore, Store
from penstock.engine.store.sqlite import SqliteStore
from penstock.ops.config import Config


def store_of(
    config: Config,
    part: str,
    *,
    data: Path | None = None,
    database: str | None = None,
    memory: bool = False,
    lease_s: float | None = None,
    shard: str = "",
) -> Store:
    """Return the store of a part's queues: the one that the command line names, else the configured one.

    `shard` is what the schema of one of several shards ends with.
    """
    if sum([data is not None, database is not None, memory]) > 1:
        raise typer.BadParameter("give one of --data, --database and --memory")
    if memory:
        return MemoryStore()
    if url := database_url(config, data, database):
        return _in_postgres(url, f"penstock_{part}{shard}", lease_s)
    directory = data or Path(config.data.dir)
    try:
        private_directory(directory)
    except OSError as error:
        raise InvalidArgument(f"cannot create the data directory {directory}: {error.strerror}") from error
    return SqliteStore(directory / f"{part}.db", durability=config.data.durability)


def named_stores(config: Config, lease_s: float | None = None, shard: str = "") -> dict[str, Store]:
    """Return the databases that partitions can be placed in, by name."""
    stores: dict[str, Store] = {}
    for entry in config.sqs.databases:
        name, _, url = entry.partition("=")
        if url.startswith(("postgres://", "postgresql://")):
            stores[name] = _in_postgres(url, f"penstock_sqs_{name}{shard}", lease_s)
        else:
            path = Path(url)
            path.parent.mkdir(parents=True, exist_ok=True)
            stores[name] = SqliteStore(path, durability=config.data.durability)
    return stores


def _in_postgres(url: str, schema: str, lease_s: float | None) -> Store:
    # Imported when it is used: the driver is a tenth of the start of a part.
    from penstock.engine.store.postgres import PostgresStore

    return PostgresStore(url, schema=schema) if lease_s is None else PostgresStore(url, schema=schema, lease_s=lease_s)

"""The stores a served part keeps its queues in."""

from pathlib import Path

from penstock.domain.errors import InvalidArgument
from penstock.engine.store.memory import MemoryStore
from penstock.engine.store.port import Store
from penstock.engine.store.postgres import PostgresStore
from penstock.engine.store.sqlite import SqliteStore
from penstock.ops.config import Config


def store_of(
    config: Config, part: str, *, data: Path | None = None, database: str | None = None, memory: bool = False
) -> Store:
    """The store of a part: what was asked for on the command line, else what the configuration says."""
    if memory:
        return MemoryStore()
    if database is None and data is None:
        database = config.data.database or None
    if database is not None:
        return PostgresStore(database, schema=f"penstock_{part}")
    directory = data or Path(config.data.dir)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"cannot make the data directory {directory}: {error.strerror}") from error
    return SqliteStore(directory / f"{part}.db", durability=config.data.durability)


def named_stores(config: Config) -> dict[str, Store]:
    """The databases that partitions can be placed in, by name."""
    stores: dict[str, Store] = {}
    for entry in config.sqs.databases:
        name, _, url = entry.partition("=")
        if url.startswith(("postgres://", "postgresql://")):
            stores[name] = PostgresStore(url, schema=f"penstock_sqs_{name}")
        else:
            path = Path(url)
            path.parent.mkdir(parents=True, exist_ok=True)
            stores[name] = SqliteStore(path, durability=config.data.durability)
    return stores

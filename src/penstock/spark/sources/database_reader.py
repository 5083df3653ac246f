"""What the sources need of a database, and the reader for each kind."""

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow

from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.statements import KeyRange, Query


class DatabaseReader(Protocol):
    """Reads a database; it can be pickled, and connects where it is used."""

    @property
    def prefix(self) -> str:
        """Return the prefix of table names."""
        ...

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return all rows of a small SELECT on a kept connection."""
        ...

    def boundaries(self, query: Query, splits: int | None) -> list[int] | list[str]:
        """Return keys that divide the result into parts of similar size."""
        ...

    def batches(self, query: Query, span: KeyRange, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of a range; damaged rows are set aside."""
        ...

    def close(self) -> None:
        """Close the connection."""


def reader_for(database: SparkDatabase) -> DatabaseReader:
    """Return the reader of a database. Only the module of that kind is imported, because many processes do so."""
    if database.dialect is Dialect.SQLITE:
        from penstock.spark.sources.sqlite_reader import SqliteReader

        return SqliteReader(database)
    from penstock.spark.sources.postgres_reader import PostgresReader

    return PostgresReader(database)

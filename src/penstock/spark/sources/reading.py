"""What the sources need of a database, and which one that is."""

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow

from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.statements import KeyRange, Query


class Reading(Protocol):
    """A database to read; it can be pickled, and connects where it is used."""

    @property
    def prefix(self) -> str:
        """What names of tables begin with."""
        ...

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """All rows of a small SELECT, on a connection that is kept."""
        ...

    def boundaries(self, query: Query, splits: int | None) -> list[int] | list[str]:
        """Keys that divide what is asked into parts of about one size."""
        ...

    def batches(self, query: Query, span: KeyRange, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
        """The rows of a range; what cannot be read is set aside."""
        ...

    def close(self) -> None:
        """Hang up."""


def reading_of(database: SparkDatabase) -> Reading:
    """How a database is read. The other kind is not even imported: a start has a handful of processes that would."""
    if database.dialect is Dialect.SQLITE:
        from penstock.spark.sources.sqlite_reading import SqliteReading

        return SqliteReading(database)
    from penstock.spark.sources.postgres_reading import PostgresReading

    return PostgresReading(database)

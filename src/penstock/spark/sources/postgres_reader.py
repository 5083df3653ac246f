"""Reads rows of PostgreSQL as Arrow, which ADBC fetches by binary COPY."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pyarrow
from adbc_driver_manager import Error
from adbc_driver_postgresql import dbapi
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.engine.store.postgres_address import PostgresAddress, Session
from penstock.events.errors import DatabaseFailed
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.statements import KeyRange, Query, quantiles
from penstock.spark.sources.valid_rows import set_aside, valid_batch

_PAGE_BYTES = 8192
_SPLIT_BYTES = 32 * 1024 * 1024
_MOST_SPLITS = 512
_SAMPLED_PAGES_PER_SPLIT = 64

_SIZE = """
SELECT coalesce(sum(pg_relation_size(relid)), pg_relation_size('{0}'::regclass))::bigint
FROM pg_partition_tree('{0}'::regclass) WHERE isleaf
"""

_CONNECTION: dict[str, str | int] = {
    "application_name": "penstock-pipeline",
    "connect_timeout": 10,
    "keepalives_idle": 15,
}


class PostgresReader:
    """A schema of a PostgreSQL database."""

    def __init__(self, database: SparkDatabase) -> None:
        self._database = database
        self._address = PostgresAddress(database.url)
        self._session: Session | None = None

    def __reduce__(self) -> "tuple[Callable[[SparkDatabase], PostgresReader], tuple[SparkDatabase]]":
        return PostgresReader, (self._database,)

    @property
    def prefix(self) -> str:
        """Return the prefix of table names."""
        return sql.Identifier(self._database.schema).as_string(None) + "."

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return all rows of a small SELECT on a kept connection; reconnect once if it was lost."""
        try:
            try:
                return self._rows(text)
            except psycopg.OperationalError:
                self.close()
                return self._rows(text)
        except psycopg.Error as error:
            self.close()
            raise self._failed(error) from None

    def boundaries(self, query: Query, splits: int | None) -> list[str]:
        """Return keys that divide the result, from a random sample of the table's pages."""
        total = sum(self.rows(_SIZE.format(query.prefix + part))[0][0] for part in query.table.parts)
        count = splits or min(_MOST_SPLITS, -(-total // _SPLIT_BYTES))
        if count < 2:
            return []
        percent = min(100.0, 100.0 * _SAMPLED_PAGES_PER_SPLIT * count * _PAGE_BYTES / max(total, 1))
        sampled = f"TABLESAMPLE SYSTEM ({percent:.6f}) WHERE {query.where}"
        keys = [
            key
            for part in query.table.parts
            for (key,) in self.rows(f"SELECT {query.key} FROM {query.prefix}{part} {sampled}")
        ]
        return quantiles(keys, count)

    def batches(self, query: Query, span: KeyRange, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of a range, a few megabytes at a time."""
        try:
            with (
                closing(dbapi.connect(make_conninfo(self._database.url, **_CONNECTION))) as connection,
                closing(connection.cursor()) as cursor,
            ):
                # Compiling a read takes longer than running it.
                cursor.execute("SET jit = off")
                cursor.execute(query.text(span))
                with closing(cursor.fetch_record_batch()) as reader:
                    for batch in reader:
                        sound, bad = valid_batch(batch, schema, query.table)
                        set_aside(self._database, bad)
                        yield sound
        except Error as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        if self._session is None:
            self._session = self._address.connect(self._database.schema)
        return self._session.execute(text.encode()).fetchall()

    def _failed(self, error: Exception) -> DatabaseFailed:
        return DatabaseFailed(f"{self._address} cannot be read: {self._address.explain(error)}")

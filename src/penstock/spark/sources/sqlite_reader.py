"""Reads rows of an SQLite file as Arrow."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow

from penstock.events.errors import DatabaseFailed
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.statements import KeyRange, Query, quantiles
from penstock.spark.sources.valid_rows import set_aside, valid_columns

_SPLIT_ROWS = 250_000
_MOST_SPLITS = 128
_PROBES_PER_SPLIT = 16
_BATCH_ROWS = 8_192
_BUSY_TIMEOUT_S = 10.0
# Rows read by an index are scattered over the file; without the mapping, each costs a read of a page.
_MAPPED = f"PRAGMA mmap_size = {4 * 1024**3}"


class SqliteReader:
    """A local SQLite file."""

    prefix = ""

    def __init__(self, database: SparkDatabase) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None

    def __reduce__(self) -> "tuple[Callable[[SparkDatabase], SqliteReader], tuple[SparkDatabase]]":
        return SqliteReader, (self._database,)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return all rows of a small SELECT on a kept connection."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.execute(text).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def boundaries(self, query: Query, splits: int | None) -> list[int] | list[str]:
        """Return keys that divide the result, probed at even distances in the file."""
        spans = {part: self.rows(f"SELECT min(rowid), max(rowid) FROM {part}")[0] for part in query.table.parts}
        held = {part: span for part, span in spans.items() if span[0] is not None}
        count = splits or min(_MOST_SPLITS, sum(last - first for first, last in held.values()) // _SPLIT_ROWS)
        if count < 2:
            return []
        keys = [
            key
            for part, (first, last) in held.items()
            for rowid in range(first, last + 1, max(1, (last - first) // (_PROBES_PER_SPLIT * count)))
            for (key,) in self.rows(f"SELECT {query.key} FROM {part} WHERE rowid = {rowid}")
        ]
        return quantiles(keys, count)

    def batches(self, query: Query, span: KeyRange, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of a range, some thousands at a time."""
        try:
            with closing(self._connect()) as connection:
                # Text that is not UTF-8 must not end the read.
                connection.text_factory = bytes
                cursor = connection.execute(query.text(span))
                while rows := cursor.fetchmany(_BATCH_ROWS):
                    sound, bad = valid_columns(rows, schema, query)
                    set_aside(self._database, bad)
                    yield sound
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self._database.path.as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        connection.execute(_MAPPED)
        return connection

    def _failed(self, error: sqlite3.Error) -> DatabaseFailed:
        return DatabaseFailed(f"{self._database.place} cannot be read: {error}")

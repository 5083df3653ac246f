"""Separates valid rows from those that do not match their columns' types, and records the latter.

Damaged rows go to the table `set_aside` with the reason, and the stream continues.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from logging import getLogger
from typing import Any

import msgspec
import pyarrow
import pyarrow.compute

from penstock.domain.errors import PenstockError
from penstock.edge.clock import SystemClock
from penstock.events.errors import DatabaseFailed
from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.statements import Query, StoredTable

log = getLogger(__name__)
_REASON_CHARACTERS = 500
_BUSY_TIMEOUT_S = 10.0
_SQLITE = "INSERT INTO set_aside (source, row_id, reason, at_ms) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"

_POSTGRES = """
INSERT INTO set_aside (source, row_id, reason, at_ms)
SELECT source, row_id, reason, %s FROM unnest(%s::text[], %s::text[], %s::text[]) AS aside (source, row_id, reason)
ON CONFLICT DO NOTHING
"""

_MISFITS = (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError)
_Row = tuple[str, str, str]


class SetAside(msgspec.Struct, frozen=True):
    """A row that could not be used: its table, its key and the reason."""

    source: str
    row_id: str
    reason: str


def set_aside(database: SparkDatabase, rows: Sequence[SetAside]) -> None:
    """Record rows, each once however often they are read. A failure to record costs a warning, not the read."""
    if not rows:
        return
    now_ms = SystemClock().now_ms()
    plain = [(_storable(row.source), _storable(row.row_id), _storable(row.reason)) for row in rows]
    log.warning("%s: %d rows set aside, the first is %s", database.place, len(rows), plain[0])
    insert = _insert_in_sqlite if database.dialect is Dialect.SQLITE else _insert_in_postgres
    try:
        insert(database, plain, now_ms)
    except PenstockError as error:
        log.warning("%s: rows set aside could not be recorded: %s", database.place, error)


def _insert_in_sqlite(database: SparkDatabase, rows: list[_Row], now_ms: int) -> None:
    try:
        with closing(sqlite3.connect(database.path, timeout=_BUSY_TIMEOUT_S)) as connection, connection:
            connection.executemany(_SQLITE, [(*row, now_ms) for row in rows])
    except sqlite3.Error as error:
        raise DatabaseFailed(str(error)) from error


def _insert_in_postgres(database: SparkDatabase, rows: list[_Row], now_ms: int) -> None:
    from psycopg import Error

    from penstock.engine.store.postgres_address import PostgresAddress

    address = PostgresAddress(database.url)
    try:
        with closing(address.connect(database.schema)) as session:
            session.execute(_POSTGRES, (now_ms, *(list(column) for column in zip(*rows, strict=True))))
    except Error as error:
        raise DatabaseFailed(address.explain(error)) from None


def _storable(text: str) -> str:
    """Return a text that both databases can store."""
    return text[:_REASON_CHARACTERS].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def valid_batch(
    batch: pyarrow.RecordBatch, schema: pyarrow.Schema, table: StoredTable
) -> tuple[pyarrow.RecordBatch, list[SetAside]]:
    """Return the rows with all required values, and those without, of a database with strict types."""
    missing = [field.name for field in schema if not field.nullable and batch.column(field.name).null_count]
    bad = []
    if missing:
        whole = pyarrow.compute.is_valid(batch.column(missing[0]))
        for name in missing[1:]:
            whole = pyarrow.compute.and_(whole, pyarrow.compute.is_valid(batch.column(name)))
        for row in batch.filter(pyarrow.compute.invert(whole)).to_pylist():
            reason = ", ".join(f"{name} is unknown" for name in missing if row[name] is None)
            bad.append(SetAside(table.name, ":".join(str(row[name]) for name in table.identity), reason))
        batch = batch.filter(whole)
    return pyarrow.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema), bad


def valid_columns(
    rows: Sequence[tuple[Any, ...]], schema: pyarrow.Schema, query: Query
) -> tuple[pyarrow.RecordBatch, list[SetAside]]:
    """Return the valid rows and the others, of a database whose columns can hold anything; text comes as bytes."""
    try:
        return _batch(rows, schema), []
    except _MISFITS:
        reasons = [_misfit(row, schema) for row in rows]
    places = [query.selected.index(name) for name in query.table.identity]
    bad = [
        SetAside(query.table.name, ":".join(_shown(row[place]) for place in places), reason)
        for row, reason in zip(rows, reasons, strict=True)
        if reason is not None
    ]
    return _batch([row for row, reason in zip(rows, reasons, strict=True) if reason is None], schema), bad


def _batch(rows: Sequence[tuple[Any, ...]], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for field, values in zip(schema, columns, strict=False):
        array = _array(values, field.type)
        if array.null_count and not field.nullable:
            raise pyarrow.ArrowInvalid(f"{field.name} is missing")
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    # Arrow would drop the fraction.
    if pyarrow.types.is_integer(kind) and float in set(map(type, values)):
        raise pyarrow.ArrowInvalid("it is not an integer")
    return pyarrow.array(values, kind)


def _misfit(row: tuple[Any, ...], schema: pyarrow.Schema) -> str | None:
    for field, value in zip(schema, row, strict=False):
        if value is None and field.nullable:
            continue
        if value is None:
            return f"{field.name} is unknown"
        try:
            _array((value,), field.type)
        except _MISFITS as error:
            return f"{field.name} cannot be read: {error}"
    return None


def _shown(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

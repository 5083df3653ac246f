"""Rows that are what their columns say, and the others: a database can hold what its tables do not promise.

What the pipeline cannot use goes to the table `set_aside` with the reason, and the stream goes on.
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

_log = getLogger(__name__)
_REASON_CHARACTERS = 500
_BUSY_TIMEOUT_S = 10.0
_SQLITE = "INSERT INTO set_aside (source, row_id, reason, at_ms) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_POSTGRES = """
INSERT INTO set_aside (source, row_id, reason, at_ms)
SELECT source, row_id, reason, %s FROM unnest(%s::text[], %s::text[], %s::text[]) AS aside (source, row_id, reason)
ON CONFLICT DO NOTHING
"""

_Row = tuple[str, str, str]


class SetAside(msgspec.Struct, frozen=True):
    """A row that could not be used: its table, its key there, and why."""

    source: str
    row_id: str
    reason: str


def set_aside(database: SparkDatabase, rows: Sequence[SetAside]) -> None:
    """Record rows, each once however often they are met; a database that refuses it costs a warning, not the read."""
    if not rows:
        return
    now_ms = SystemClock().now_ms()
    plain = [(_kept(row.source), _kept(row.row_id), _kept(row.reason)) for row in rows]
    _log.warning("%s: %d rows set aside, the first is %s", database.place, len(rows), plain[0])
    keep = _keep_in_sqlite if database.dialect is Dialect.SQLITE else _keep_in_postgres
    try:
        keep(database, plain, now_ms)
    except PenstockError as error:
        _log.warning("%s: what was set aside could not be recorded: %s", database.place, error)


def _keep_in_sqlite(database: SparkDatabase, rows: list[_Row], now_ms: int) -> None:
    try:
        with closing(sqlite3.connect(database.path, timeout=_BUSY_TIMEOUT_S)) as connection, connection:
            connection.executemany(_SQLITE, [(*row, now_ms) for row in rows])
    except sqlite3.Error as error:
        raise DatabaseFailed(str(error)) from error


def _keep_in_postgres(database: SparkDatabase, rows: list[_Row], now_ms: int) -> None:
    from psycopg import Error

    from penstock.engine.store.postgres_address import PostgresAddress

    address = PostgresAddress(database.url)
    try:
        with closing(address.connect(database.schema)) as session:
            session.execute(_POSTGRES, (now_ms, *(list(column) for column in zip(*rows, strict=True))))
    except Error as error:
        raise DatabaseFailed(address.explain(error)) from None


def _kept(text: str) -> str:
    """What both databases can hold."""
    return text[:_REASON_CHARACTERS].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


_MISFITS = (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError)


def sound_batch(
    batch: pyarrow.RecordBatch, schema: pyarrow.Schema, table: StoredTable
) -> tuple[pyarrow.RecordBatch, list[SetAside]]:
    """Of a batch from a database that keeps to its types: rows without a value that must be there are the others."""
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


def sound_columns(
    rows: Sequence[tuple[Any, ...]], schema: pyarrow.Schema, query: Query
) -> tuple[pyarrow.RecordBatch, list[SetAside]]:
    """Of rows from a database whose columns can hold anything; text comes as bytes."""
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
    # Arrow would cut off what is behind the point.
    if pyarrow.types.is_integer(kind) and float in set(map(type, values)):
        raise pyarrow.ArrowInvalid("it is not a whole number")
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

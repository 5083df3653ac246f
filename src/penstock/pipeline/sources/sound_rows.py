"""Rows that are what their columns say, and the others: a database can hold what its tables do not promise."""

from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.compute

from penstock.pipeline.sources.query import Query
from penstock.pipeline.sources.set_aside import SetAside
from penstock.pipeline.sources.stored_table import StoredTable

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

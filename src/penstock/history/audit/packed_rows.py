"""Rows as columns of numbers, packed by the thousand into one row of Spark, so that a shuffle moves arrays.

A part is a share of all rows by the hash of what they have in common: it has all rows of each of its jobs, or of each
of its groups. There are more parts than tasks, so that Spark can give one or several to a task.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy
import pyarrow
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

Numbers = NDArray[numpy.int64]
PARTS = 256

PACKED_ROWS = StructType(
    [
        StructField("part", IntegerType(), nullable=False),
        StructField("what", StringType(), nullable=False),
        StructField("layout", BinaryType(), nullable=False),
        StructField("data", BinaryType(), nullable=False),
    ]
)
"""The rows of a part, one after the other, in the form of their layout."""

_PACKED_ROWS_ARROW = to_arrow_schema(PACKED_ROWS)
_ROWS_AT_ONCE = 1 << 18
_SHIFT = numpy.uint64(64 - (PARTS - 1).bit_length())
_LARGEST = (1 << 63) - 1
_WHOLE = 8
_NARROW = (0, 1, 2, 4)

_PRIMES = [
    numpy.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
]

_SEED = 42


class NarrowRows(NamedTuple):
    """Rows of few bytes, and their layout: the width and the least number of each column.

    A shuffle copies rows several times. Each number is stored as its distance from the column's least: for times of a
    day that takes four bytes instead of eight, for a flag one, and for equal numbers none.
    """

    rows: NDArray[Any]
    layout: Numbers


class RowPacker:
    """Collects rows until each part has enough of them to send."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._waiting: list[list[Numbers]] = []
        self._count = 0

    def add(self, columns: Sequence[Numbers]) -> Iterator[pyarrow.RecordBatch]:
        """Add rows, whose first column decides the part of each; return what is sent now."""
        for start in range(0, len(columns[0]), _ROWS_AT_ONCE):
            some = [column[start : start + _ROWS_AT_ONCE] for column in columns]
            self._waiting.append(some)
            self._count += len(some[0])
            if self._count >= _ROWS_AT_ONCE:
                yield from self.rest()

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        """Return all rows that wait."""
        if self._count:
            columns = [numpy.concatenate(pieces) for pieces in zip(*self._waiting, strict=True)]
            self._waiting, self._count = [], 0
            part = _part_of(columns[0])
            narrow = narrowed(columns)
            rows = narrow.rows.take(numpy.argsort(part, kind="stable"))
            counts = numpy.bincount(part, minlength=PARTS)
            parts = numpy.flatnonzero(counts)
            yield _batch(parts, self._what, narrow._replace(rows=rows), counts[parts])


def packed_numbers(what: str, numbers: Numbers, part: int = 0) -> pyarrow.RecordBatch:
    """Return numbers that are not rows, packed for a part."""
    column = narrowed([numbers.reshape(-1)])
    return _batch(numpy.array([part]), what, column, numpy.array([numbers.size]))


def unpacked(batches: Iterable[pyarrow.RecordBatch]) -> dict[tuple[int, str], list[NarrowRows]]:
    """Return the packed rows of a partition by part and content."""
    found: dict[tuple[int, str], list[NarrowRows]] = {}
    for batch in batches:
        part, what, layout, data = (batch.column(name) for name in PACKED_ROWS.names)
        for place, key in enumerate(zip(part.to_pylist(), what.to_pylist(), strict=True)):
            found.setdefault(key, []).append(narrow_rows(data[place].as_buffer(), layout[place].as_py()))
    return found


def columns_of(packed: Sequence[NarrowRows], width: int) -> Numbers:
    """Return the columns of rows that came in several packs."""
    columns = numpy.empty((width, sum(len(each.rows) for each in packed)), dtype=numpy.int64)
    start = 0
    for each in packed:
        end = start + len(each.rows)
        widen(each, columns[:, start:end])
        start = end
    return columns


def numbers_of(packed: Sequence[NarrowRows]) -> list[Numbers]:
    """Return the numbers of `packed_numbers`."""
    return [columns_of([each], 1)[0] for each in packed]


def _part_of(hashes: Numbers) -> NDArray[numpy.uint8]:
    return (hashes.astype(numpy.uint64) >> _SHIFT).astype(numpy.uint8)


def _batch(parts: Numbers, what: str, narrow: NarrowRows, counts: Numbers) -> pyarrow.RecordBatch:
    """Return the rows of each part, one after the other, without copying them."""
    ends = numpy.concatenate(([0], numpy.cumsum(counts * narrow.rows.itemsize))).astype(numpy.int32)
    # As plain bytes, because Arrow does not accept rows of several numbers.
    data = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(narrow.rows.view(numpy.uint8))]
    columns = [
        pyarrow.array(parts, pyarrow.int32()),
        pyarrow.array([what] * len(parts), pyarrow.string()),
        pyarrow.array([narrow.layout.tobytes()] * len(parts), pyarrow.binary()),
        pyarrow.Array.from_buffers(pyarrow.binary(), len(parts), data),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=_PACKED_ROWS_ARROW)


def narrowed(columns: Sequence[Numbers]) -> NarrowRows:
    """Return columns as narrow rows. The first column is a hash and keeps its width."""
    layout = numpy.array([(_WHOLE, 0), *map(_narrowest, columns[1:])], dtype=numpy.int64)
    rows = numpy.empty(len(columns[0]), _kind_of(layout))
    for place, (width, least) in enumerate(layout.tolist()):
        if width:
            rows[str(place)] = columns[place] - least if least else columns[place]
    return NarrowRows(rows, layout)


def narrow_rows(data: pyarrow.Buffer, layout: bytes) -> NarrowRows:
    """Return rows that were sent as bytes."""
    columns = numpy.frombuffer(layout, numpy.int64).reshape(-1, 2)
    return NarrowRows(numpy.frombuffer(data, _kind_of(columns)), columns)


def widen(narrow: NarrowRows, columns: Numbers) -> None:
    """Write rows to columns of the same length."""
    for place, (width, least) in enumerate(narrow.layout.tolist()):
        if width:
            numpy.add(narrow.rows[str(place)], least, out=columns[place], dtype=numpy.int64)
        else:
            columns[place] = least


def _narrowest(column: Numbers) -> tuple[int, int]:
    least = int(column.min(initial=_LARGEST))
    span = int(column.max(initial=least)) - least
    return next(((width, least) for width in _NARROW if span < 1 << 8 * width), (_WHOLE, 0))


def _kind_of(layout: Numbers) -> numpy.dtype[Any]:
    return _kind(tuple(layout[:, 0].tolist()))


@cache
def _kind(widths: tuple[int, ...]) -> numpy.dtype[Any]:
    kinds = {str(place): f"{'i' if width == _WHOLE else 'u'}{width}" for place, width in enumerate(widths) if width}
    return numpy.dtype(list(kinds.items()))


def number_hash(numbers: Numbers) -> Numbers:
    """Return Spark's `xxhash64(number)`."""
    return pair_hash(numpy.full_like(numbers, _SEED), numbers)


def pair_hash(hashes: Numbers, numbers: Numbers) -> Numbers:
    """Return Spark's `xxhash64(something, number)`, where `hashes` has `xxhash64(something)`."""
    first, second, third, fourth, fifth = _PRIMES
    found = hashes.view(numpy.uint64) + (fifth + numpy.uint64(8))
    found ^= _rotated(numbers.view(numpy.uint64) * second, 31) * first
    found = _rotated(found, 27) * first + fourth
    found ^= found >> numpy.uint64(33)
    found *= second
    found ^= found >> numpy.uint64(29)
    found *= third
    found ^= found >> numpy.uint64(32)
    return found.view(numpy.int64)


def _rotated(numbers: "NDArray[numpy.uint64]", bits: int) -> "NDArray[numpy.uint64]":
    return numbers << numpy.uint64(bits) | numbers >> numpy.uint64(64 - bits)

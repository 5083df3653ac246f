"""Rows as columns of numbers, thousands of them in one row of Spark: so a shuffle moves arrays, not rows.

A part is a share of all rows by the hash of what they have in common: whoever has a part has all rows of each job in
it, or of each group. There are more parts than tasks, so that Spark can give one or several to a task, which looks at
them one after the other.

Columns of numbers as rows of few bytes: they are copied half a dozen times on their way through a shuffle.

Of each column the least number is told, and of each row how far it is above that: for times of a day that takes four
bytes instead of eight, for a mark one, and for numbers that are all the same none.

Spark's `xxhash64` of numbers in numpy, so that Java and Python sum up the same.
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

_LARGEST = (1 << 63) - 1
_WHOLE = 8
_NARROW = (0, 1, 2, 4)


class NarrowRows(NamedTuple):
    """Rows, and how to read them: of each column how many bytes it has, and its least number."""

    rows: NDArray[Any]
    layout: Numbers


def narrowed(columns: Sequence[Numbers]) -> NarrowRows:
    """Columns as rows, at least one of them. The first column is a hash: it stays as it is."""
    layout = numpy.array([(_WHOLE, 0), *map(_narrowest, columns[1:])], dtype=numpy.int64)
    rows = numpy.empty(len(columns[0]), _kind_of(layout))
    for place, (width, least) in enumerate(layout.tolist()):
        if width:
            rows[str(place)] = columns[place] - least if least else columns[place]
    return NarrowRows(rows, layout)


def narrow_rows(data: pyarrow.Buffer, layout: bytes) -> NarrowRows:
    """Rows that were sent as bytes."""
    columns = numpy.frombuffer(layout, numpy.int64).reshape(-1, 2)
    return NarrowRows(numpy.frombuffer(data, _kind_of(columns)), columns)


def widen(narrow: NarrowRows, columns: Numbers) -> None:
    """Write rows to columns that are as long."""
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


PARTS = 256
PARCELS = StructType(
    [
        StructField("part", IntegerType(), nullable=False),
        StructField("what", StringType(), nullable=False),
        StructField("layout", BinaryType(), nullable=False),
        StructField("data", BinaryType(), nullable=False),
    ]
)
"""Rows of a part, one after the other, as their layout says."""

_PARCELS_ARROW = to_arrow_schema(PARCELS)
_ROWS_AT_ONCE = 1 << 18
_SHIFT = numpy.uint64(64 - (PARTS - 1).bit_length())


class RowSender:
    """Collects rows until there are so many that each part gets a parcel worth the trouble."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._waiting: list[list[Numbers]] = []
        self._count = 0

    def add(self, columns: Sequence[Numbers]) -> Iterator[pyarrow.RecordBatch]:
        """Take rows, of which the first column says to which part each belongs; what is sent now."""
        for start in range(0, len(columns[0]), _ROWS_AT_ONCE):
            some = [column[start : start + _ROWS_AT_ONCE] for column in columns]
            self._waiting.append(some)
            self._count += len(some[0])
            if self._count >= _ROWS_AT_ONCE:
                yield from self.rest()

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        """Send all that waits."""
        if self._count:
            columns = [numpy.concatenate(pieces) for pieces in zip(*self._waiting, strict=True)]
            self._waiting, self._count = [], 0
            part = _part_of(columns[0])
            narrow = narrowed(columns)
            rows = narrow.rows.take(numpy.argsort(part, kind="stable"))
            counts = numpy.bincount(part, minlength=PARTS)
            parts = numpy.flatnonzero(counts)
            yield _batch(parts, self._what, narrow._replace(rows=rows), counts[parts])


def parcel(what: str, numbers: Numbers, part: int = 0) -> pyarrow.RecordBatch:
    """One parcel of numbers that are no rows."""
    column = narrowed([numbers.reshape(-1)])
    return _batch(numpy.array([part]), what, column, numpy.array([numbers.size]))


def opened(batches: Iterable[pyarrow.RecordBatch]) -> dict[tuple[int, str], list[NarrowRows]]:
    """All parcels of a partition by part and content, as they came."""
    found: dict[tuple[int, str], list[NarrowRows]] = {}
    for batch in batches:
        part, what, layout, data = (batch.column(name) for name in PARCELS.names)
        for place, key in enumerate(zip(part.to_pylist(), what.to_pylist(), strict=True)):
            found.setdefault(key, []).append(narrow_rows(data[place].as_buffer(), layout[place].as_py()))
    return found


def columns_of(parcels: Sequence[NarrowRows], width: int) -> Numbers:
    """The columns of rows that came in several parcels."""
    columns = numpy.empty((width, sum(len(each.rows) for each in parcels)), dtype=numpy.int64)
    start = 0
    for each in parcels:
        end = start + len(each.rows)
        widen(each, columns[:, start:end])
        start = end
    return columns


def numbers_of(parcels: Sequence[NarrowRows]) -> list[Numbers]:
    """What was sent as parcels of numbers."""
    return [columns_of([each], 1)[0] for each in parcels]


def _part_of(hashes: Numbers) -> NDArray[numpy.uint8]:
    return (hashes.astype(numpy.uint64) >> _SHIFT).astype(numpy.uint8)


def _batch(parts: Numbers, what: str, narrow: NarrowRows, counts: Numbers) -> pyarrow.RecordBatch:
    """So many rows for each part, one after the other; they are not copied."""
    ends = numpy.concatenate(([0], numpy.cumsum(counts * narrow.rows.itemsize))).astype(numpy.int32)
    # As plain bytes: Arrow does not take rows of several numbers.
    data = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(narrow.rows.view(numpy.uint8))]
    columns = [
        pyarrow.array(parts, pyarrow.int32()),
        pyarrow.array([what] * len(parts), pyarrow.string()),
        pyarrow.array([narrow.layout.tobytes()] * len(parts), pyarrow.binary()),
        pyarrow.Array.from_buffers(pyarrow.binary(), len(parts), data),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=_PARCELS_ARROW)


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


def number_hash(numbers: Numbers) -> Numbers:
    """What `xxhash64(number)` is."""
    return pair_hash(numpy.full_like(numbers, _SEED), numbers)


def pair_hash(hashes: Numbers, numbers: Numbers) -> Numbers:
    """What `xxhash64(something, number)` is, where `xxhash64(something)` is in `hashes`."""
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

"""Rows as columns of numbers, thousands of them in one row of Spark: so a shuffle moves arrays, not rows.

A part is a share of all rows by the hash of what they have in common: whoever has a part has all rows of each job in
it, or of each group. There are more parts than tasks, so that Spark can give one or several to a task, which looks at
them one after the other.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy
import pyarrow
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

Numbers = NDArray[numpy.int64]

PARTS = 256
PARCELS = StructType(
    [
        StructField("part", IntegerType(), nullable=False),
        StructField("what", StringType(), nullable=False),
        StructField("data", BinaryType(), nullable=False),
    ]
)
"""Rows of a part, one after the other, each some 64-bit numbers."""

_PARCELS_ARROW = to_arrow_schema(PARCELS)
_ROWS_AT_ONCE = 1 << 18
_SHIFT = numpy.uint64(64 - (PARTS - 1).bit_length())


class Sender:
    """Collects rows until there are so many that each part gets a parcel worth the trouble."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._waiting: list[Numbers] = []
        self._count = 0

    def add(self, columns: Sequence[Numbers]) -> Iterator[pyarrow.RecordBatch]:
        """Take rows, of which the first column says to which part each belongs; what is sent now."""
        for start in range(0, len(columns[0]), _ROWS_AT_ONCE):
            rows = numpy.stack([column[start : start + _ROWS_AT_ONCE] for column in columns], axis=1)
            self._waiting.append(rows)
            self._count += len(rows)
            if self._count >= _ROWS_AT_ONCE:
                yield from self.rest()

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        """Send all that waits."""
        if self._count:
            rows = numpy.concatenate(self._waiting)
            self._waiting, self._count = [], 0
            part = _part_of(rows[:, 0])
            rows = rows.take(numpy.argsort(part, kind="stable"), axis=0)
            counts = numpy.bincount(part, minlength=PARTS)
            parts = numpy.flatnonzero(counts)
            yield _batch(parts, self._what, rows, counts[parts] * rows.shape[1])


def parcel(what: str, numbers: Numbers, part: int = 0) -> pyarrow.RecordBatch:
    """One parcel of anything."""
    return _batch(numpy.array([part]), what, numbers, numpy.array([numbers.size]))


def opened(batches: Iterable[pyarrow.RecordBatch]) -> dict[tuple[int, str], list[Numbers]]:
    """All parcels of a partition by part and content, as they came."""
    found: dict[tuple[int, str], list[Numbers]] = {}
    for batch in batches:
        part, what, data = (batch.column(name) for name in PARCELS.names)
        for place, key in enumerate(zip(part.to_pylist(), what.to_pylist(), strict=True)):
            found.setdefault(key, []).append(numpy.frombuffer(data[place].as_buffer(), numpy.int64))
    return found


def columns_of(parcels: Sequence[Numbers], width: int) -> Numbers:
    """The columns of rows that came in several parcels."""
    rows = numpy.concatenate([numpy.empty(0, numpy.int64), *parcels])
    return numpy.ascontiguousarray(rows.reshape(-1, width).T)


def _part_of(hashes: Numbers) -> NDArray[numpy.uint8]:
    return (hashes.astype(numpy.uint64) >> _SHIFT).astype(numpy.uint8)


def _batch(parts: Numbers, what: str, numbers: Numbers, sizes: Numbers) -> pyarrow.RecordBatch:
    """Numbers as parcels of these sizes, one after the other; they are not copied."""
    ends = numpy.concatenate(([0], numpy.cumsum(sizes * numbers.itemsize))).astype(numpy.int32)
    data = pyarrow.Array.from_buffers(
        pyarrow.binary(),
        len(parts),
        [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(numpy.ascontiguousarray(numbers))],
    )
    names = pyarrow.array([what] * len(parts), pyarrow.string())
    return pyarrow.RecordBatch.from_arrays([pyarrow.array(parts, pyarrow.int32()), names, data], schema=_PARCELS_ARROW)

"""Columns of numbers as rows of few bytes: they are copied half a dozen times on their way through a shuffle.

Of each column the least number is told, and of each row how far it is above that: for times of a day that takes four
bytes instead of eight, for a mark one, and for numbers that are all the same none.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy
import pyarrow
from numpy.typing import NDArray

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

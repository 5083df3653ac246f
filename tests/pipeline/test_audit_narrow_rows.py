"""Columns come back from narrow rows as they were, whatever their numbers; and rows are as narrow as they can be."""

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.history.audit.packed_rows import narrow_rows, narrowed, widen

LEAST, MOST = -(1 << 63), (1 << 63) - 1
NUMBER = st.integers(LEAST, MOST) | st.sampled_from([LEAST, MOST, -1, 0, 255, 256, 65_535, 65_536, 1 << 32])
COLUMNS = st.tuples(st.integers(1, 6), st.integers(0, 8)).flatmap(
    lambda shape: st.lists(st.lists(NUMBER, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0])
)


@given(COLUMNS)
def test_columns_come_back_as_they_were(numbers: list[list[int]]) -> None:
    columns = numpy.array(numbers, dtype=numpy.int64)
    narrow = narrowed(list(columns))
    sent = narrow_rows(pyarrow.py_buffer(narrow.rows.tobytes()), narrow.layout.tobytes())
    found = numpy.empty_like(columns)
    widen(sent, found)
    assert found.tolist() == numbers


@pytest.mark.parametrize(
    ("least", "span", "width"),
    [
        (LEAST, 0, 0),
        (MOST, 0, 0),
        (1_600_000_000_000, 1, 1),
        (-100, 255, 1),
        (-100, 256, 2),
        (0, 65_535, 2),
        (0, 65_536, 4),
        (MOST - (1 << 32) + 1, (1 << 32) - 1, 4),
        (0, 1 << 32, 8),
        (LEAST, MOST - LEAST, 8),
    ],
)
def test_a_column_has_no_more_bytes_than_its_numbers_need(least: int, span: int, width: int) -> None:
    column = numpy.array([least + span, least, least], dtype=numpy.int64)
    narrow = narrowed([numpy.zeros(3, dtype=numpy.int64), column])
    assert narrow.rows.itemsize == 8 + width
    found = numpy.empty((2, 3), dtype=numpy.int64)
    widen(narrow, found)
    assert found[1].tolist() == column.tolist()

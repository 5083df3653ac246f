"""Filters that a database does for Spark pass exactly the rows that Spark would pass."""

import operator
from collections.abc import Callable
from typing import Any

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from penstock.events.store.statements import MODE_OF, STATUS_OF, Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.schemas import JOBS
from penstock.spark.sources.statements import STORED, condition
from penstock.spark.sources.table_source import TableReader
from tests.rigs.job_database import add_jobs
from tests.rigs.search import examples

TEXTS = ["a", "B", "b'", "é", "\\", "aé", "", "%"]
STATES = [state for state in range(9) if state != 2]  # 2 was CLAIMED, which no job is any more
JOBS_KEPT = [
    (f"{TEXTS[n % 8]}{n}", TEXTS[n * 5 % 8], n % 3, STATES[n % 8], n * 7 % 11 - 3, n % 4 or None) for n in range(40)
]
COMPARED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, wanted: value in wanted,
    StringContains: lambda value, wanted: wanted in value,
}
NUMBERS = st.sampled_from([-4, -1, 0, 1, 2, 3, 7, 2**62])
STATUSES = st.sampled_from(sorted({status.value for status in STATUS_OF}))
COLUMNS = {
    "id": st.sampled_from(["a0", "é3", "B", "b'2", "\\4", ""]),
    "group_key": st.sampled_from(TEXTS),
    "created_at_ms": NUMBERS,
    "finished_at_ms": NUMBERS,
    "status": STATUSES,
    "mode": st.sampled_from([mode.value for mode in MODE_OF]),
}
TEXT_COLUMNS = {"id", "group_key", "status", "mode"}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    # Their constructors differ, and their common class has none.
    kind: Any = draw(st.sampled_from([*COMPARED, IsNull, IsNotNull]))
    column = draw(st.sampled_from(sorted(TEXT_COLUMNS if kind is StringContains else COLUMNS)))
    values = COLUMNS[column]
    made: Filter
    if kind in (IsNull, IsNotNull):
        made = kind((column,))
    elif kind is In:
        made = In((column,), tuple(draw(st.lists(values, min_size=1, max_size=3))))
    else:
        made = kind((column,), draw(values))
    return Not(made) if draw(st.booleans()) else made


def passes(wanted: Filter, row: dict[str, Any]) -> bool | None:
    """As Spark says it: None, which is not passing, when a value is missing."""
    if isinstance(wanted, Not):
        inner = passes(wanted.child, row)
        return None if inner is None else not inner
    value = row[wanted.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(wanted, IsNull | IsNotNull):
        return (value is None) is isinstance(wanted, IsNull)
    return None if value is None else COMPARED[type(wanted)](value, wanted.value)  # type: ignore[attr-defined]


def read(database: SparkDatabase, wanted: list[Filter]) -> tuple[list[dict[str, Any]], list[Filter]]:
    reader = TableReader(database, STORED["jobs"], JOBS, None)
    left = list(reader.pushFilters(wanted))
    batches: list[pyarrow.RecordBatch] = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()], left


@pytest.fixture
def jobs(database: SparkDatabase) -> tuple[SparkDatabase, list[dict[str, Any]]]:
    add_jobs(database, JOBS_KEPT)
    rows, _ = read(database, [])
    assert len(rows) == len(JOBS_KEPT)
    return database, rows


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=st.lists(filters(), min_size=1, max_size=3))
def test_pushed_filters_pass_what_spark_would_pass(
    jobs: tuple[SparkDatabase, list[dict[str, Any]]], wanted: list[Filter]
) -> None:
    database, everything = jobs

    found, left = read(database, wanted)
    kept = [row for row in found if all(passes(rest, row) for rest in left)]

    expected = [row for row in everything if all(passes(one, row) for one in wanted)]
    assert sorted(row["id"] for row in kept) == sorted(row["id"] for row in expected)
    assert not [one for one in left if not _coded_order_or_null(one)]


def _coded_order_or_null(wanted: Filter) -> bool:
    """What is left to Spark: the order of names that are kept as numbers, and whether such a one is missing."""
    inner = wanted.child if isinstance(wanted, Not) else wanted
    return inner.attribute[0] in ("status", "mode") and not isinstance(inner, EqualTo | In)  # type: ignore[attr-defined]


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "wanted",
    [
        EqualNullSafe(("id",), "a"),
        StringStartsWith(("id",), "a"),
        EqualTo(("id",), "a\0b"),
        EqualTo(("payload",), b"x"),
        EqualTo(("id", "nested"), "a"),
        EqualTo(("id",), 5),
        EqualTo(("sequence",), "5"),
        EqualTo(("nothing",), 1),
        In(("id",), ()),
    ],
)
def test_what_the_database_would_see_differently_is_left_to_spark(wanted: Filter, dialect: Dialect) -> None:
    assert condition(wanted, JOBS, dialect) is None


def test_text_is_quoted_for_each_database() -> None:
    wanted = EqualTo(("id",), "'; DROP TABLE jobs; --\\")

    assert condition(wanted, JOBS, Dialect.SQLITE) == "id IN ('''; DROP TABLE jobs; --\\')"
    assert condition(wanted, JOBS, Dialect.POSTGRES) == "id IN ( E'''; DROP TABLE jobs; --\\\\')"


def test_text_is_ordered_byte_by_byte_whatever_language_the_database_speaks() -> None:
    assert condition(LessThan(("type",), "b"), JOBS, Dialect.POSTGRES) == "type COLLATE \"C\" < 'b'"
    assert condition(LessThan(("type",), "b"), JOBS, Dialect.SQLITE) == "type < 'b'"

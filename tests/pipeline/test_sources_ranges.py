"""However a table is divided, every row is read exactly once, with the values it has."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.events.store.statements import Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.database_reader import reader_for
from penstock.spark.sources.statements import EVERYTHING, STORED, KeyRange, Query, quantiles, ranges_between
from tests.rigs.job_database import NOW_MS, add_attempts, add_jobs, execute, made
from tests.rigs.search import examples

READY, COMPLETED, BLOCK = 1, 5, 2
# Quotes, a backslash and letters past ASCII: what could break SQL or be ordered otherwise than byte by byte.
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


def read(place: SparkDatabase, table: str, span: KeyRange = EVERYTHING, *columns: str) -> pyarrow.Table:
    stored = STORED[table]
    reading = reader_for(place)
    schema = to_arrow_schema(stored.schema)
    if columns:
        schema = pyarrow.schema([schema.field(name) for name in columns])
    query = Query(stored, tuple(schema.names), place.dialect, reading.prefix)
    return pyarrow.Table.from_batches(reading.batches(query, span, schema), schema)


def ids(table: pyarrow.Table, column: str = "id") -> list[str]:
    values: list[str] = table.column(column).to_pylist()
    return values


@given(st.lists(st.integers(-50, 50)), st.integers(1, 9), st.lists(st.integers(-60, 60)))
def test_ranges_between_any_quantiles_hold_every_key_once(sample: list[int], count: int, keys: list[int]) -> None:
    ranges = ranges_between(quantiles(sample, count))

    assert len(ranges) <= count
    for key in keys:
        holding = [
            span
            for span in ranges
            if (span.lower is None or key >= int(span.lower)) and (span.upper is None or key < int(span.upper))
        ]
        assert len(holding) == 1


@settings(max_examples=examples(40))
@given(st.sets(KEYS, max_size=12), st.sets(KEYS, max_size=6))
def test_any_boundaries_read_every_job_of_sqlite_once(keys: set[str], boundaries: set[str]) -> None:
    with TemporaryDirectory() as directory:
        place = made(SparkDatabase(f"sqlite://{Path(directory)}/jobs.db"))
        live, archived = sorted(keys)[::2], sorted(keys)[1::2]
        add_jobs(place, [(key, "g", BLOCK, READY, 1, None) for key in live])
        add_jobs(place, [(key, "g", BLOCK, COMPLETED, 1, 2) for key in archived], "archived_jobs")

        found = [key for span in ranges_between(sorted(boundaries)) for key in ids(read(place, "jobs", span))]

        assert Counter(found) == Counter(keys)


@pytest.mark.parametrize("splits", [2, 3, 7])
def test_a_table_divided_by_its_own_keys_is_read_once(database: SparkDatabase, splits: int) -> None:
    names = [f"job-{number * 7919 % 3000:04}" for number in range(3000)]
    add_jobs(database, [(name, f"g'{name[-2:]}\\é", BLOCK, READY, 1, None) for name in names[:2000]])
    add_jobs(database, [(name, "g", BLOCK, COMPLETED, 1, NOW_MS) for name in names[2000:]], "archived_jobs")
    add_attempts(database, *names)
    if database.dialect is Dialect.POSTGRES:
        execute(database, "ANALYZE")

    for table, key, expected in (
        ("jobs", "id", names),
        ("attempts", "job_id", names),
    ):
        reading = reader_for(database)
        query = Query(STORED[table], (key,), database.dialect, reading.prefix)
        ranges = ranges_between(reading.boundaries(query, splits))
        reading.close()
        shares = [ids(read(database, table, span, key), key) for span in ranges]

        assert len(shares) == splits, table
        assert sorted(name for share in shares for name in share) == sorted(expected), table
        assert max(len(share) for share in shares) < len(expected) * 2.5 / splits, table


def test_an_empty_table_is_one_range(database: SparkDatabase) -> None:
    reading = reader_for(database)
    query = Query(STORED["jobs"], ("id",), database.dialect, reading.prefix)

    assert reading.boundaries(query, 4) == []
    reading.close()
    assert read(database, "jobs").num_rows == 0


def test_a_large_key_range_is_found_by_the_keys_index(postgres_place: SparkDatabase) -> None:
    add_jobs(postgres_place, [(f"job-{number:05}", "g", BLOCK, READY, 1, None) for number in range(5000)])
    reading = reader_for(postgres_place)
    execute(postgres_place, "ANALYZE jobs")
    query = Query(STORED["jobs"], ("id", "status"), Dialect.POSTGRES, reading.prefix)

    plan = "\n".join(line for (line,) in reading.rows("EXPLAIN " + query.text(KeyRange("job-01000", "job-01400"))))
    reading.close()

    assert "jobs_pkey" in plan
    assert "Seq Scan on jobs" not in plan

"""Screens all rows of a window for the few groups, jobs and events that need a close look.

Jobs and attempts meet in one shuffle by job and continue in one shuffle by group, as packed rows. Names are represented
by hashes: two groups that share one are suspected together, and the checks separate them. On the way into the first
shuffle, events and jobs are summed up (lost.py).
"""

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy
import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.history.audit.catalog import AuditCatalog
from penstock.history.audit.lost import EVENT_HASH, ExpectedSums, Sums, stored_pair, unbalanced, with_marks
from penstock.history.audit.packed_rows import (
    PACKED_ROWS,
    Numbers,
    RowPacker,
    columns_of,
    numbers_of,
    packed_numbers,
    unpacked,
)
from penstock.history.audit.screen_rows import (
    ATTEMPT_WIDTH,
    JOB_WIDTH,
    PLACE_WIDTH,
    attempt_columns,
    attempts_of_columns,
    hash_of,
    job_columns,
    jobs_of_columns,
    sent_attempts,
    sent_jobs,
)
from penstock.history.audit.suspects import Places, match_attempts, out_of_turn
from penstock.history.audit.window import OUTCOMES, STATUSES, AuditWindow

SUSPECT_GROUP, SUSPECT_JOB, SUSPECT_BUCKET, COUNT = "group", "job", "bucket", "count"
UNRECORDED = "unrecorded"

SCREENED = StructType(
    [
        StructField("what", StringType(), nullable=False),
        StructField("name", StringType(), nullable=True),
        StructField("key", LongType(), nullable=False),
    ]
)
"""`what` is a suspect group or job with its hash as the key, a bucket of events, or a count of jobs or attempts."""

_SCREENED_ARROW = to_arrow_schema(SCREENED)
_JOBS, _ATTEMPTS, _SUMS, _PLACES = "jobs", "attempts", "sums", "places"
_PAIR = "pair"
_UNKNOWN = "UNKNOWN"
_COUNTED = (*STATUSES, f"jobs {_UNKNOWN}", *OUTCOMES, f"attempts {_UNKNOWN}", UNRECORDED)
_Batches = Iterator[pyarrow.RecordBatch]


def screen(
    events: DataFrame, catalog: AuditCatalog, jobs: DataFrame, attempts: DataFrame, window: AuditWindow
) -> DataFrame:
    """Return what is suspect, and how many rows there were; all arguments are those of the window."""
    sides = (
        sent_jobs(with_marks(jobs, catalog), window, stored_pair(window).alias(_PAIR)).mapInArrow(
            _pack_jobs, PACKED_ROWS
        ),
        sent_attempts(attempts, window).mapInArrow(_pack_attempts, PACKED_ROWS),
        _expected(events, catalog, window.future_ms),
    )
    is_whole = window.subscription_id is None

    def match(batches: _Batches) -> _Batches:
        return _matched(batches, is_whole=is_whole)

    rows = reduce(DataFrame.unionAll, sides)
    return rows.repartition("part").mapInArrow(match, PACKED_ROWS).repartition("part").mapInArrow(_placed, SCREENED)


def _expected(events: DataFrame, catalog: AuditCatalog, future_ms: int) -> DataFrame:
    def sum_up(batches: _Batches) -> _Batches:
        expected = ExpectedSums(catalog, future_ms)
        for batch in batches:
            expected.add(batch)
        yield packed_numbers(_SUMS, expected.sums.numbers)

    return events.select(*EVENT_COLUMNS, hash_of("id").alias(EVENT_HASH)).mapInArrow(sum_up, PACKED_ROWS)


def _pack_jobs(batches: _Batches) -> _Batches:
    sender, sums = RowPacker(_JOBS), Sums()
    for batch in batches:
        sums.have(batch.column(_PAIR).to_numpy())
        yield from sender.add(job_columns(batch))
    yield from sender.rest()
    yield packed_numbers(_SUMS, sums.numbers)


def _pack_attempts(batches: _Batches) -> _Batches:
    sender = RowPacker(_ATTEMPTS)
    for batch in batches:
        yield from sender.add(attempt_columns(batch))
    yield from sender.rest()


def _matched(batches: _Batches, *, is_whole: bool) -> _Batches:
    """Match the jobs of a partition with their attempts; without `is_whole`, attempts may lack their job."""
    found = unpacked(batches)
    sender = RowPacker(_PLACES)
    counts = numpy.zeros(len(_COUNTED), dtype=numpy.int64)
    for part in sorted({part for part, _ in found}):
        jobs, statuses = jobs_of_columns(columns_of(found.pop((part, _JOBS), []), JOB_WIDTH))
        attempts, outcomes = attempts_of_columns(columns_of(found.pop((part, _ATTEMPTS), []), ATTEMPT_WIDTH))
        seen = match_attempts(jobs, attempts)
        counted = outcomes if is_whole else outcomes[~seen.without_job]
        counts += _counts(statuses, counted, seen.unrecorded)
        yield from sender.add(seen.places)
        if len(seen.suspect_groups):
            yield packed_numbers(SUSPECT_GROUP, seen.suspect_groups, part)
        if is_whole and seen.without_job.any():
            yield packed_numbers(SUSPECT_JOB, numpy.unique(attempts.job[seen.without_job]), part)
        if sums := found.pop((part, _SUMS), []):
            yield packed_numbers(SUSPECT_BUCKET, unbalanced(numbers_of(sums)), part)
    yield from sender.rest()
    yield packed_numbers(COUNT, counts)


def _placed(batches: _Batches) -> _Batches:
    """Check the groups of a partition, and pass on what was found before."""
    found = unpacked(batches)
    for part in sorted({part for part, what in found if what == _PLACES}):
        places = Places(*columns_of(found.pop((part, _PLACES)), PLACE_WIDTH))
        yield _rows(SUSPECT_GROUP, out_of_turn(places))
    for (_, what), packed in found.items():
        arrays = numbers_of(packed)
        numbers = numpy.sum(arrays, axis=0) if what == COUNT else numpy.concatenate(arrays)
        yield _rows(what, numbers, _COUNTED if what == COUNT else None)


def _counts(statuses: Numbers, outcomes: Numbers, unrecorded: int) -> Numbers:
    """Return counts in the order of _COUNTED."""
    of_jobs = numpy.bincount(statuses, minlength=len(STATUSES) + 1)
    of_attempts = numpy.bincount(outcomes, minlength=len(OUTCOMES) + 1)
    return numpy.concatenate((of_jobs, of_attempts, [unrecorded]))


def _rows(what: str, keys: Numbers, names: Sequence[str] | None = None) -> pyarrow.RecordBatch:
    nameless: Sequence[str | None] = [None] * len(keys)
    columns = [[what] * len(keys), names or nameless, keys]
    arrays = [pyarrow.array(values, field.type) for values, field in zip(columns, _SCREENED_ARROW, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=_SCREENED_ARROW)

"""The screen as DataFrames: all rows of a window in, the few groups, jobs and events out that need a close look.

Jobs and attempts meet in one shuffle by job and go on in one shuffle by group, as parcels of numbers. Names are told by
their hash: two groups that share one are suspected together, and told apart by the checks. On their way into the first
shuffle, events and jobs are summed up (`balance`).
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
from penstock.history.audit.lost import EVENT_HASH, Sums, Wanted, made_pair, unbalanced, with_marks
from penstock.history.audit.packed_rows import PARCELS, Numbers, RowSender, columns_of, numbers_of, opened, parcel
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
from penstock.history.audit.screening import Places, met, out_of_turn
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
    """What is suspect, and how much there was; all are those of the window."""
    sides = (
        sent_jobs(with_marks(jobs, catalog), window, made_pair(window).alias(_PAIR)).mapInArrow(_pack_jobs, PARCELS),
        sent_attempts(attempts, window).mapInArrow(_pack_attempts, PARCELS),
        _wanted(events, catalog, window.future_ms),
    )
    is_whole = window.subscription_id is None

    def meet(batches: _Batches) -> _Batches:
        return _met(batches, is_whole=is_whole)

    rows = reduce(DataFrame.unionAll, sides)
    return rows.repartition("part").mapInArrow(meet, PARCELS).repartition("part").mapInArrow(_placed, SCREENED)


def _wanted(events: DataFrame, catalog: AuditCatalog, future_ms: int) -> DataFrame:
    packed, since_ms = catalog.packed, dict(catalog.since_ms)

    def want(batches: _Batches) -> _Batches:
        wanted = Wanted(packed, since_ms, future_ms)
        for batch in batches:
            wanted.add(batch)
        yield parcel(_SUMS, wanted.sums.numbers)

    return events.select(*EVENT_COLUMNS, hash_of("id").alias(EVENT_HASH)).mapInArrow(want, PARCELS)


def _pack_jobs(batches: _Batches) -> _Batches:
    sender, sums = RowSender(_JOBS), Sums()
    for batch in batches:
        sums.have(batch.column(_PAIR).to_numpy())
        yield from sender.add(job_columns(batch))
    yield from sender.rest()
    yield parcel(_SUMS, sums.numbers)


def _pack_attempts(batches: _Batches) -> _Batches:
    sender = RowSender(_ATTEMPTS)
    for batch in batches:
        yield from sender.add(attempt_columns(batch))
    yield from sender.rest()


def _met(batches: _Batches, *, is_whole: bool) -> _Batches:
    """Looks at the jobs of a partition with their attempts; of a part of the whole, attempts may lack their job."""
    found = opened(batches)
    sender = RowSender(_PLACES)
    counts = numpy.zeros(len(_COUNTED), dtype=numpy.int64)
    for part in sorted({part for part, _ in found}):
        jobs, statuses = jobs_of_columns(columns_of(found.pop((part, _JOBS), []), JOB_WIDTH))
        attempts, outcomes = attempts_of_columns(columns_of(found.pop((part, _ATTEMPTS), []), ATTEMPT_WIDTH))
        seen = met(jobs, attempts)
        counted = outcomes if is_whole else outcomes[~seen.without_job]
        counts += _counts(statuses, counted, seen.unrecorded)
        yield from sender.add(seen.places)
        if len(seen.suspect_groups):
            yield parcel(SUSPECT_GROUP, seen.suspect_groups, part)
        if is_whole and seen.without_job.any():
            yield parcel(SUSPECT_JOB, numpy.unique(attempts.job[seen.without_job]), part)
        if sums := found.pop((part, _SUMS), []):
            yield parcel(SUSPECT_BUCKET, unbalanced(numbers_of(sums)), part)
    yield from sender.rest()
    yield parcel(COUNT, counts)


def _placed(batches: _Batches) -> _Batches:
    """Looks at the groups of a partition, and tells what was found on the way here."""
    found = opened(batches)
    for part in sorted({part for part, what in found if what == _PLACES}):
        places = Places(*columns_of(found.pop((part, _PLACES)), PLACE_WIDTH))
        yield _rows(SUSPECT_GROUP, out_of_turn(places))
    for (_, what), parcels in found.items():
        told = numbers_of(parcels)
        numbers = numpy.sum(told, axis=0) if what == COUNT else numpy.concatenate(told)
        yield _rows(what, numbers, _COUNTED if what == COUNT else None)


def _counts(statuses: Numbers, outcomes: Numbers, unrecorded: int) -> Numbers:
    """In the order of _COUNTED."""
    of_jobs = numpy.bincount(statuses, minlength=len(STATUSES) + 1)
    of_attempts = numpy.bincount(outcomes, minlength=len(OUTCOMES) + 1)
    return numpy.concatenate((of_jobs, of_attempts, [unrecorded]))


def _rows(what: str, keys: Numbers, names: Sequence[str] | None = None) -> pyarrow.RecordBatch:
    nameless: Sequence[str | None] = [None] * len(keys)
    columns = [[what] * len(keys), names or nameless, keys]
    arrays = [pyarrow.array(values, field.type) for values, field in zip(columns, _SCREENED_ARROW, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=_SCREENED_ARROW)

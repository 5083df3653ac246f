"""The screen as DataFrames: all rows of a window in, the few groups and jobs out that the checks have to look at.

Jobs and attempts meet in one shuffle by job and go on in one shuffle by group, as numbers and the one text that order
may need; they are put in order where they are looked at, a partition at a time. Names of groups are told by their hash:
two that share one are suspected together, and told apart by the checks.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy
import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.core.job_state import JobStatus
from penstock.core.pointer import DispatchMode
from penstock.pipeline.audit.holds import strict_until, untried_until
from penstock.pipeline.audit.rows import OUTCOMES, STATUSES, attempt_damage, has_place, job_damage
from penstock.pipeline.audit.screen_rows import MOST_BEGUN, NO_OUTCOME, NUMBERS, PLACES, in_order
from penstock.pipeline.audit.screening import (
    BLOCKS,
    LATEST_MS,
    NONE_MS,
    PASSES,
    Reach,
    Rows,
    joined,
    last_job_begins,
    screened,
)
from penstock.pipeline.audit.undelivered import owes_proof
from penstock.pipeline.audit.window import AuditWindow

SUSPECT_GROUP, SUSPECT_JOB, COUNT = "group", "job", "count"
UNRECORDED = "unrecorded"

SCREENED = StructType(
    [
        StructField("what", StringType(), nullable=False),
        StructField("name", StringType(), nullable=True),
        StructField("key", LongType(), nullable=False),
    ]
)
"""`what` is a suspect group or job with its hash as the key, or the count of jobs and attempts of a name."""

_UNKNOWN = "UNKNOWN"


def screen(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """What is suspect, and how much there was; `jobs` and `attempts` are those of the window."""
    rows = _met(_job_side(jobs, window), _attempt_side(attempts, window), window)
    return rows.repartition("group").mapInArrow(_screened, SCREENED)


def hash_of(name: str) -> Column:
    """The number that stands for a text."""
    return f.xxhash64(f.col(name))


def _job_side(jobs: DataFrame, window: AuditWindow) -> DataFrame:
    is_placed = has_place(window)
    mode = f.when(~is_placed, 0).when(f.col("mode") == DispatchMode.BLOCK_ON_ERROR.value, BLOCKS).otherwise(PASSES)
    # One that is being delivered has begun what it cannot have written down yet; of older ones attempts are not read.
    under_way = (f.col("status") == JobStatus.PROCESSING.value).cast("int")
    begun = f.when(f.col("created_at_ms") >= window.since_ms, f.col("delivery_count") - under_way)
    return jobs.select(
        "id",
        hash_of("group_key").alias("group"),
        "sequence",
        "created_at_ms",
        mode.alias("mode"),
        f.when(is_placed, _cut(strict_until())).otherwise(NONE_MS).alias("strict_ms"),
        f.when(is_placed, _cut(untried_until())).otherwise(NONE_MS).alias("untried_ms"),
        owes_proof(window).cast("long").alias("owes_proof"),
        job_damage(window).isNotNull().cast("int").alias("job_is_damaged"),
        _code("status", STATUSES).alias("status"),
        f.coalesce(begun, f.lit(0)).alias("begun"),
    )


def _attempt_side(attempts: DataFrame, window: AuditWindow) -> DataFrame:
    return attempts.select(
        "job_id",
        _cut(f.col("at_ms")).alias("at_ms"),
        _cut(f.col("end_ms")).alias("end_ms"),
        _code("outcome", OUTCOMES).alias("outcome"),
        attempt_damage(window).isNotNull().cast("int").alias("attempt_is_damaged"),
    )


def _met(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """The rows that `screen_rows.rows_of` takes."""
    how = "full" if window.subscription_id is None else "left"
    met = jobs.hint("shuffle_hash").join(attempts, jobs["id"] == attempts["job_id"], how)
    # 2 is an attempt without a job, whose group nobody knows.
    suspicious = f.when(f.col("id").isNull(), 2).otherwise(
        f.greatest(f.col("job_is_damaged"), f.coalesce(f.col("attempt_is_damaged"), f.lit(0)))
    )
    parts = {
        "mode": f.coalesce(f.col("mode"), f.lit(0)),
        "owes_proof": f.coalesce(f.col("owes_proof"), f.lit(0)),
        "suspicious": suspicious,
        "status": f.coalesce(f.col("status"), f.lit(len(STATUSES))),
        "outcome": f.coalesce(f.col("outcome"), f.lit(NO_OUTCOME)),
        "begun": f.greatest(f.least(f.coalesce(f.col("begun"), f.lit(0)), f.lit(MOST_BEGUN)), f.lit(0)),
    }
    return met.select(
        f.coalesce(f.col("group"), f.lit(0)).alias("group"),
        *(f.coalesce(f.col(name), f.lit(NONE_MS)).alias(name) for name in NUMBERS),
        f.xxhash64(f.coalesce(f.col("id"), f.col("job_id"))).alias("job"),
        _packed(parts).alias("parts"),
        "id",
    )


def _packed(parts: Mapping[str, Column]) -> Column:
    """Small numbers in one: what goes from Java to Python costs by the column."""
    packed = f.lit(0).cast("long")
    for name, place in PLACES.items():
        packed = packed.bitwiseOR(f.shiftleft(parts[name].cast("long"), place))
    return packed


def _cut(time: Column) -> Column:
    """A time that the screen can reckon with; null is none."""
    return f.greatest(f.least(f.coalesce(time, f.lit(NONE_MS)), f.lit(LATEST_MS)), f.lit(NONE_MS))


def _code(name: str, known: tuple[str, ...]) -> Column:
    """The place of a name among those known, else their number."""
    found = f.when(f.col(name) == known[0], 0)
    for place, each in enumerate(known[1:], 1):
        found = found.when(f.col(name) == each, place)
    return found.otherwise(len(known))


def _screened(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Screens a partition; the rows of a job that may go on wait for the next piece."""
    tally = _Tally()
    held, reach = None, Reach()
    for rows in in_order(batches):
        tally.attempts(rows)
        rows = rows if held is None else joined(held, rows)
        end = last_job_begins(rows)
        if end:
            reach = tally.jobs(rows.cut(0, end), reach)
        held = rows.cut(end, len(rows.job))
        yield tally.suspects()
    if held is not None:
        tally.jobs(held, reach)
    yield tally.suspects()
    yield tally.counts()


class _Tally:
    """What a partition has shown so far."""

    def __init__(self) -> None:
        self._schema = to_arrow_schema(SCREENED)
        self._counts: Counter[str] = Counter()
        self._groups: list[int] = []
        self._jobs: list[int] = []

    def attempts(self, rows: Rows) -> None:
        """Count the attempts of a batch, and note those without a job."""
        numbers = numpy.bincount(rows.outcome[rows.outcome >= 0], minlength=len(OUTCOMES) + 1)
        self._counts.update(dict(zip((*OUTCOMES, f"attempts {_UNKNOWN}"), numbers.tolist(), strict=True)))
        self._jobs += numpy.unique(rows.job[rows.suspicious == 2]).tolist()

    def jobs(self, rows: Rows, reach: Reach) -> Reach:
        """Look at whole jobs."""
        seen = screened(rows, reach)
        numbers = numpy.bincount(seen.statuses, minlength=len(STATUSES) + 1)
        self._counts.update(dict(zip((*STATUSES, f"jobs {_UNKNOWN}"), numbers.tolist(), strict=True)))
        self._counts[UNRECORDED] += seen.unrecorded
        self._groups += seen.groups.tolist()
        return seen.reach

    def suspects(self) -> pyarrow.RecordBatch:
        """What was found suspect since the last time."""
        groups, jobs = self._groups, self._jobs
        self._groups, self._jobs = [], []
        return self._batch(
            [*((SUSPECT_GROUP, None, key) for key in groups), *((SUSPECT_JOB, None, key) for key in jobs)]
        )

    def counts(self) -> pyarrow.RecordBatch:
        """How many of each there were."""
        return self._batch([(COUNT, name, number) for name, number in self._counts.items() if number])

    def _batch(self, rows: list[tuple[str, str | None, int]]) -> pyarrow.RecordBatch:
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        arrays = [pyarrow.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

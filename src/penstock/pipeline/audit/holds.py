"""When a job holds back the ones behind it, as far as its row and its attempts prove it (core.turn is the rule).

A BLOCK_ON_ERROR or NEXT_ON_ERROR job holds back BLOCK_ON_ERROR jobs from when it was made until it is over; in ERROR it
goes on doing so, until somebody retries or ignores it. A NEXT_ON_ERROR job holds back others of its kind until its
first delivery begins. What cannot be proven holds nothing back:

- a job made for later takes its place at a moment nobody wrote down, so it counts from its first attempt on;
- one in ERROR that is not BLOCK_ON_ERROR leaves its group when it is archived, so it counts until it failed;
- of an attempt that was never written down (a crash) nobody knows when it began.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.job_state import FINAL, JobStatus
from penstock.domain.pointer import DispatchMode
from penstock.pipeline.audit.rows import Said, by_name

FOREVER_MS = (1 << 63) - 1

_FINAL = tuple(status.value for status in FINAL)
_OVER = tuple(status for status in _FINAL if status != JobStatus.ERROR)
_BLOCKING, _PASSING = DispatchMode.BLOCK_ON_ERROR.value, DispatchMode.NEXT_ON_ERROR.value


def holds(jobs: DataFrame, attempts: DataFrame) -> DataFrame:
    """Ordered jobs with `from_ms`, and until when they hold back: `strict_until_ms` and `next_until_ms`, or null."""
    tried = attempts.groupBy(f.col("job_id").alias("id")).agg(
        f.min("at_ms").alias("earliest_ms"), f.min(f.when(f.col("number") == 1, f.col("at_ms"))).alias("first_ms")
    )
    at_once = f.col("scheduled_for_ms").isNull() | (f.col("scheduled_for_ms") <= f.col("created_at_ms"))
    first_begins = f.coalesce(f.col("first_ms"), untried_until())
    finished = f.col("finished_at_ms")
    until_tried = f.when(
        f.col("status").isin(*_FINAL),
        f.when(finished.isNotNull() & first_begins.isNotNull(), f.least(first_begins, finished)),
    ).otherwise(first_begins)
    return (
        jobs.join(tried, "id", "left")
        .withColumn("from_ms", f.when(at_once, f.col("created_at_ms")).otherwise(f.col("earliest_ms")))
        .withColumn("strict_until_ms", strict_until())
        .withColumn("next_until_ms", f.when(f.col("mode") == _PASSING, until_tried))
        .where(f.col("from_ms").isNotNull())
    )


def strict_until(said: Said = by_name) -> Column:
    """Until when a job holds back BLOCK_ON_ERROR jobs behind it."""
    in_error = f.col("status") == said(JobStatus.ERROR.value)
    ends = f.col("status").isin(*map(said, _OVER)) | (in_error & (f.col("mode") != said(_BLOCKING)))
    return f.when(ends, f.col("finished_at_ms")).otherwise(f.lit(FOREVER_MS))


def untried_until(said: Said = by_name) -> Column:
    """Until when a job that no delivery has begun of holds back NEXT_ON_ERROR jobs behind it."""
    ends = f.when(f.col("status").isin(*map(said, _FINAL)), f.col("finished_at_ms"))
    return f.when((f.col("mode") == said(_PASSING)) & (f.col("delivery_count") == 0), ends.otherwise(f.lit(FOREVER_MS)))

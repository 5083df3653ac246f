"""Order per key: no delivery began while an earlier job of its group held it back, or while another was in progress.

The rule is `domain.order.holds_back`; the property test of the audit applies it to every pair of jobs. A BLOCK_ON_ERROR
or NEXT_ON_ERROR job holds back BLOCK_ON_ERROR jobs from its creation until it is finished; in ERROR it continues to do
so until it is retried or ignored. A NEXT_ON_ERROR job holds back others of its kind until its first delivery begins.
What cannot be proven holds nothing back:

- a job created for later takes its place at an unrecorded time, so it counts from its first attempt on;
- one in ERROR that is not BLOCK_ON_ERROR leaves its group when it is archived, so it counts until it failed;
- of an attempt that was never recorded (a crash), the start is unknown.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

import pyarrow
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.domain.ids import COPY_JOINT
from penstock.domain.job_state import FINAL, JobStatus
from penstock.domain.order import Position, Standing, holds_back
from penstock.domain.pointer import DispatchMode
from penstock.history.audit.findings import FINDINGS, FindingKind, as_findings
from penstock.history.audit.window import ROUNDING_MS, AuditWindow, NameEncoding, by_name, has_place, has_time

FOREVER_MS = (1 << 63) - 1
_BLOCKING = DispatchMode.BLOCK_ON_ERROR.value
_FINAL = tuple(status.value for status in FINAL)
_JOB = ("group_key", "id", "sequence", "created_at_ms", "mode", "status", "subscription_id")
_HOLD = ("from_ms", "strict_until_ms", "next_until_ms")
_ATTEMPT = ("number", "at_ms", "end_ms")


def _holds_back(mode: DispatchMode, status: JobStatus, behind: DispatchMode) -> bool:
    """Return whether an untried job holds back one behind it that is about to be delivered."""
    earlier, later = Position(0, 0, ""), Position(1, 0, "")
    return holds_back(Standing(earlier, mode, status), Standing(later, behind, JobStatus.QUEUED))


_FINISHED = tuple(
    status.value
    for status in JobStatus
    if not _holds_back(DispatchMode.BLOCK_ON_ERROR, status, DispatchMode.BLOCK_ON_ERROR)
)

(_PASSING,) = (mode.value for mode in DispatchMode if _holds_back(mode, JobStatus.PENDING, DispatchMode.NEXT_ON_ERROR))


def holds(jobs: DataFrame, attempts: DataFrame) -> DataFrame:
    """Return ordered jobs with `from_ms`, and until when they hold back: `strict_until_ms`, `next_until_ms` or null."""
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


def strict_until(encoded: NameEncoding = by_name) -> Column:
    """Return until when a job holds back BLOCK_ON_ERROR jobs behind it."""
    in_error = f.col("status") == encoded(JobStatus.ERROR.value)
    ends = f.col("status").isin(*map(encoded, _FINISHED)) | (in_error & (f.col("mode") != encoded(_BLOCKING)))
    return f.when(ends, f.col("finished_at_ms")).otherwise(f.lit(FOREVER_MS))


def untried_until(encoded: NameEncoding = by_name) -> Column:
    """Return until when a job whose delivery has not begun holds back NEXT_ON_ERROR jobs behind it."""
    ends = f.when(f.col("status").isin(*map(encoded, _FINAL)), f.col("finished_at_ms"))
    return f.when(
        (f.col("mode") == encoded(_PASSING)) & (f.col("delivery_count") == 0), ends.otherwise(f.lit(FOREVER_MS))
    )


class Hold(NamedTuple):
    """A job that holds back those behind it, from some time on."""

    position: Position
    status: str
    from_ms: int
    strict_until_ms: int | None
    """For BLOCK_ON_ERROR jobs behind it."""
    next_until_ms: int | None
    """For NEXT_ON_ERROR jobs behind it."""


class AuditedDelivery(NamedTuple):
    """An attempt that begins."""

    position: Position
    at_ms: int
    is_strict: bool
    """Whether its job is BLOCK_ON_ERROR and not NEXT_ON_ERROR."""


class GroupSweep:
    """Takes the holds and deliveries of one group in order of time, deliveries before holds of the same time.

    Only the first of the jobs that hold something back matters, so a heap by position is enough: time moves on, and a
    hold that has ended never returns.
    """

    def __init__(self, tolerance_ms: int = 0) -> None:
        self._tolerance_ms = tolerance_ms
        # The count breaks ties, because a damaged table may have a job twice.
        self._count = 0
        self._strict: list[tuple[Position, int, int, Hold]] = []
        self._next: list[tuple[Position, int, int, Hold]] = []

    def begin_hold(self, hold: Hold) -> None:
        """Begin a hold."""
        self._count += 1
        if hold.strict_until_ms is not None:
            heappush(self._strict, (hold.position, hold.strict_until_ms, self._count, hold))
        if hold.next_until_ms is not None:
            heappush(self._next, (hold.position, hold.next_until_ms, self._count, hold))

    def overtaken(self, delivery: AuditedDelivery) -> Hold | None:
        """Return the first job that a delivery should have waited for, if there is one."""
        heap = self._strict if delivery.is_strict else self._next
        while heap and heap[0][1] <= delivery.at_ms + self._tolerance_ms:
            heappop(heap)
        if heap and heap[0][0] < delivery.position:
            return heap[0][3]
        return None


def overtaken(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Return deliveries that began out of turn, each with the first job that it should have waited for."""
    ordered, timed = jobs.where(has_place(window)), attempts.where(has_time(window))
    begun = timed.join(ordered, timed["job_id"] == ordered["id"]).select(*_JOB, *_ATTEMPT)
    # A replay's copy has its original's position and age, but did not exist when later jobs went.
    held = holds(ordered.where(~f.col("id").contains(COPY_JOINT)), timed).select(*_JOB, *_HOLD)
    moment = f.coalesce(f.col("from_ms") + window.tolerance_ms, f.col("at_ms")).alias("moment_ms")
    both = begun.unionByName(held, allowMissingColumns=True).select("*", moment)
    # At the same time, deliveries come first: they have no `from_ms`, and a hold counts from the next millisecond.
    in_time = both.repartition("group_key").sortWithinPartitions("group_key", "moment_ms", "from_ms", "id", "number")
    tolerance_ms = window.tolerance_ms

    def sweep(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        return _swept(batches, tolerance_ms)

    return in_time.mapInArrow(sweep, FINDINGS)


def _swept(batches: Iterator[pyarrow.RecordBatch], tolerance_ms: int) -> Iterator[pyarrow.RecordBatch]:
    schema = to_arrow_schema(FINDINGS)
    group, sweep = None, GroupSweep()
    for batch in batches:
        found: list[dict[str, object]] = []
        for row in batch.to_pylist():
            if row["group_key"] != group:
                group, sweep = row["group_key"], GroupSweep(tolerance_ms)
            position = Position(row["sequence"], row["created_at_ms"], row["id"])
            if row["from_ms"] is not None:
                times = (row["from_ms"], row["strict_until_ms"], row["next_until_ms"])
                sweep.begin_hold(Hold(position, row["status"], *times))
                continue
            is_strict = row["mode"] == DispatchMode.BLOCK_ON_ERROR
            hold = sweep.overtaken(AuditedDelivery(position, row["at_ms"], is_strict))
            if hold is not None:
                found.append(_finding(row, hold, is_strict=is_strict))
        yield pyarrow.RecordBatch.from_pylist(found, schema=schema)


def _finding(row: dict[str, Any], hold: Hold, *, is_strict: bool) -> dict[str, object]:
    until_ms = hold.strict_until_ms if is_strict else hold.next_until_ms
    waited_for = "finished" if is_strict else "tried"
    return {
        "kind": FindingKind.OVERTAKEN.value,
        "group_key": row["group_key"],
        "job_id": row["id"],
        "number": row["number"],
        "at_ms": row["at_ms"],
        "end_ms": row["end_ms"],
        "other_job_id": hold.position.id,
        "other_at_ms": hold.from_ms,
        "other_end_ms": None if until_ms == FOREVER_MS else until_ms,
        "subscription_id": row["subscription_id"],
        "detail": f"it began {row['at_ms'] - hold.from_ms} ms after an earlier job took its place that was not "
        f"{waited_for} yet and is {hold.status} now",
    }


def overlaps(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Return deliveries that began too early, each with the longest of those before it."""
    ordered, timed = jobs.where(has_place(window)), attempts.where(has_time(window))
    begun = timed.join(ordered, timed["job_id"] == ordered["id"])
    # Of two that began in the same millisecond, the shorter may have ended when the other began.
    in_time = Window.partitionBy("group_key").orderBy("at_ms", "end_ms", "id", "number")
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    longest = f.max(f.struct("end_ms", "id", "number", "at_ms")).over(before)
    certain = f.col("at_ms") + ROUNDING_MS + window.tolerance_ms < f.col("longest.end_ms")
    return as_findings(
        begun.withColumn("longest", longest).where(certain),
        FindingKind.OVERLAP,
        group_key=f.col("group_key"),
        job_id=f.col("id"),
        number=f.col("number"),
        at_ms=f.col("at_ms"),
        end_ms=f.col("end_ms"),
        other_job_id=f.col("longest.id"),
        other_number=f.col("longest.number"),
        other_at_ms=f.col("longest.at_ms"),
        other_end_ms=f.col("longest.end_ms"),
        subscription_id=f.col("subscription_id"),
        detail=f.concat(
            f.lit("it began "),
            (f.col("longest.end_ms") - f.col("at_ms")).cast("string"),
            f.lit(" ms before the other ended"),
        ),
    )

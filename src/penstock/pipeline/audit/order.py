"""Order per key: no delivery began while an earlier job of its group held it back."""

from collections.abc import Iterator
from typing import Any

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.domain.order import Position
from penstock.domain.pointer import DispatchMode
from penstock.events.replay import COPY_JOINT
from penstock.pipeline.audit.findings import FINDINGS, FindingKind
from penstock.pipeline.audit.holds import FOREVER_MS, holds
from penstock.pipeline.audit.rows import has_place, has_time
from penstock.pipeline.audit.sweep import Delivery, GroupSweep, Hold
from penstock.pipeline.audit.window import AuditWindow

_JOB = ("group_key", "id", "sequence", "created_at_ms", "mode", "status", "subscription_id")
_HOLD = ("from_ms", "strict_until_ms", "next_until_ms")
_ATTEMPT = ("number", "at_ms", "end_ms")


def overtaken(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Deliveries that began out of turn, each with the first job it should have waited for."""
    ordered, timed = jobs.where(has_place(window)), attempts.where(has_time(window))
    begun = timed.join(ordered, timed["job_id"] == ordered["id"]).select(*_JOB, *_ATTEMPT)
    # A replay's copy has its original's place and age, but was not there when the later ones went.
    held = holds(ordered.where(~f.col("id").contains(COPY_JOINT)), timed).select(*_JOB, *_HOLD)
    moment = f.coalesce(f.col("from_ms") + window.tolerance_ms, f.col("at_ms")).alias("moment_ms")
    both = begun.unionByName(held, allowMissingColumns=True).select("*", moment)
    # Of the same moment the deliveries first, which have no `from_ms`: a hold counts from the millisecond after.
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
            hold = sweep.overtaken(Delivery(position, row["at_ms"], is_strict))
            if hold is not None:
                found.append(_finding(row, hold, is_strict=is_strict))
        yield pyarrow.RecordBatch.from_pylist(found, schema=schema)


def _finding(row: dict[str, Any], hold: Hold, *, is_strict: bool) -> dict[str, object]:
    until_ms = hold.strict_until_ms if is_strict else hold.next_until_ms
    waited_for = "over" if is_strict else "tried"
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

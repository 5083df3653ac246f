"""One delivery of a key at a time: none began while another one of its group was under way."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from penstock.pipeline.audit.findings import FindingKind, as_findings
from penstock.pipeline.audit.rows import has_place, has_time
from penstock.pipeline.audit.window import ROUNDING_MS, AuditWindow


def overlaps(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Deliveries that began too early, each with the one of those before it that lasted longest."""
    ordered, timed = jobs.where(has_place(window)), attempts.where(has_time(window))
    begun = timed.join(ordered, timed["job_id"] == ordered["id"])
    # Of two that began in the same millisecond the shorter one may have been over when the other began.
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

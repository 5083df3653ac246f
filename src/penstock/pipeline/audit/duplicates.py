"""Delivered once: a job that was delivered is over, so that no second delivery of it is on record."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from penstock.domain.job import AttemptOutcome
from penstock.pipeline.audit.findings import FindingKind, as_findings
from penstock.pipeline.audit.rows import has_time
from penstock.pipeline.audit.window import AuditWindow


def duplicates(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Deliveries after the first one of their job."""
    delivered = attempts.where(has_time(window) & (f.col("outcome") == AttemptOutcome.DELIVERED.value))
    of_job = Window.partitionBy("job_id")
    in_order = of_job.orderBy("at_ms", "number")
    repeated = (
        delivered.withColumn("place", f.row_number().over(in_order))
        .withColumn("first", f.min(f.struct("at_ms", "number", "end_ms")).over(of_job))
        .where(f.col("place") > 1)
    )
    named = jobs.select("id", "group_key", "event_id", "subscription_id")
    return as_findings(
        repeated.join(named, repeated["job_id"] == named["id"], "left"),
        FindingKind.DUPLICATE,
        group_key=f.col("group_key"),
        job_id=f.col("job_id"),
        number=f.col("number"),
        at_ms=f.col("at_ms"),
        end_ms=f.col("end_ms"),
        other_job_id=f.col("job_id"),
        other_number=f.col("first.number"),
        other_at_ms=f.col("first.at_ms"),
        other_end_ms=f.col("first.end_ms"),
        event_id=f.col("event_id"),
        subscription_id=f.col("subscription_id"),
        detail=f.concat(
            f.lit("delivery "), f.col("place").cast("string"), f.lit(" of a job that was delivered already")
        ),
    )

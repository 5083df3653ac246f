"""Checks of deliveries: completed jobs without one, attempts without a job, duplicates, and damaged rows."""

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.history.audit.catalog import AuditCatalog
from penstock.history.audit.findings import FindingKind, as_findings
from penstock.history.audit.window import (
    FINISH_LAG_MS,
    AuditWindow,
    NameEncoding,
    attempt_damage,
    by_name,
    has_time,
    job_damage,
)


def owes_proof(window: AuditWindow, encoded: NameEncoding = by_name) -> Column:
    """Return whether a job was completed in the window, so that its delivery must be among the attempts."""
    # At the edge of the window, the delivery may lie before it.
    since_ms = window.since_ms + FINISH_LAG_MS if window.since_ms > 0 else 0
    finished = f.col("finished_at_ms").between(since_ms, window.until_ms - 1)
    return f.coalesce((f.col("status") == encoded(JobStatus.COMPLETED.value)) & finished, f.lit(False))


def undelivered(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Return COMPLETED jobs without a delivery."""
    completed = jobs.where(owes_proof(window) & f.col("id").isNotNull())
    delivered = attempts.where(f.col("outcome") == AttemptOutcome.DELIVERED.value).select("job_id")
    return as_findings(
        completed.join(delivered, completed["id"] == delivered["job_id"], "left_anti"),
        FindingKind.UNDELIVERED,
        group_key=f.col("group_key"),
        job_id=f.col("id"),
        at_ms=f.col("finished_at_ms"),
        event_id=f.col("event_id"),
        subscription_id=f.col("subscription_id"),
        detail=f.lit("the job is COMPLETED, but none of its attempts delivered it"),
    )


def unknown_jobs(jobs: DataFrame, attempts: DataFrame) -> DataFrame:
    """Return attempts whose job is neither live nor archived."""
    ids = jobs.select("id")
    named = attempts.where(f.col("job_id").isNotNull())
    return as_findings(
        named.join(ids, named["job_id"] == ids["id"], "left_anti"),
        FindingKind.UNKNOWN_JOB,
        job_id=f.col("job_id"),
        number=f.col("number"),
        at_ms=f.col("at_ms"),
        end_ms=f.col("end_ms"),
        detail=f.lit("there is no such job, live or archived"),
    )


def duplicates(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Return deliveries after the first one of their job."""
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
            f.lit("delivery "), f.col("place").cast("string"), f.lit(" of a job that was already delivered")
        ),
    )


def damaged_jobs(jobs: DataFrame, window: AuditWindow) -> DataFrame:
    """Return jobs with impossible values."""
    return as_findings(
        jobs.withColumn("damage", job_damage(window)).where(f.col("damage").isNotNull()),
        FindingKind.DAMAGED,
        group_key=f.col("group_key"),
        job_id=f.col("id"),
        at_ms=f.col("created_at_ms"),
        event_id=f.col("event_id"),
        subscription_id=f.col("subscription_id"),
        detail=f.col("damage"),
    )


def damaged_attempts(attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Return attempts with impossible values."""
    return as_findings(
        attempts.withColumn("damage", attempt_damage(window)).where(f.col("damage").isNotNull()),
        FindingKind.DAMAGED,
        job_id=f.col("job_id"),
        number=f.col("number"),
        at_ms=f.col("at_ms"),
        end_ms=f.col("end_ms"),
        detail=f.col("damage"),
    )


def damaged_subscriptions(spark: SparkSession, catalog: AuditCatalog) -> DataFrame:
    """Return subscriptions that cannot be matched with events."""
    rows = spark.createDataFrame(list(catalog.damaged.items()), "id string, reason string")
    return as_findings(
        rows,
        FindingKind.DAMAGED,
        subscription_id=f.col("id"),
        detail=f.concat(f.lit("the subscription: "), "reason"),
    )

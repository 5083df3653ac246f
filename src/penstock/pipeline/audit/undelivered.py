"""Nothing lost on the way: a COMPLETED job has a delivery on record, and an attempt has its job."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.job import AttemptOutcome
from penstock.domain.job_state import JobStatus
from penstock.pipeline.audit.findings import FindingKind, as_findings
from penstock.pipeline.audit.rows import Said, by_name
from penstock.pipeline.audit.window import FINISH_LAG_MS, AuditWindow


def owes_proof(window: AuditWindow, said: Said = by_name) -> Column:
    """Whether a job was completed in the window, so that its delivery must be among the attempts."""
    # At the edge of the window the delivery may lie before it.
    since_ms = window.since_ms + FINISH_LAG_MS if window.since_ms > 0 else 0
    finished = f.col("finished_at_ms").between(since_ms, window.until_ms - 1)
    return f.coalesce((f.col("status") == said(JobStatus.COMPLETED.value)) & finished, f.lit(False))


def undelivered(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """COMPLETED jobs without a delivery."""
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
        detail=f.lit("the job is COMPLETED, and none of its attempts delivered it"),
    )


def unknown_jobs(jobs: DataFrame, attempts: DataFrame) -> DataFrame:
    """Attempts whose job is neither among the live ones nor in the archive."""
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

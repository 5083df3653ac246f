"""All checks of jobs and attempts, one after the other."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.audit.damaged import damaged_attempts, damaged_jobs
from penstock.pipeline.audit.duplicates import duplicates
from penstock.pipeline.audit.order import overtaken
from penstock.pipeline.audit.overlap import overlaps
from penstock.pipeline.audit.undelivered import undelivered, unknown_jobs
from penstock.pipeline.audit.window import AuditWindow


def checked(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """What jobs and attempts of a window show to be broken; of a group all of them are given, or none."""
    if window.subscription_id is not None:
        # The attempts of other subscriptions are not without a job: their jobs were not asked for.
        attempts = attempts.join(jobs.select(f.col("id").alias("job_id")), "job_id", "left_semi")
    return together(
        undelivered(jobs, attempts, window),
        unknown_jobs(jobs, attempts),
        overtaken(jobs, attempts, window),
        overlaps(jobs, attempts, window),
        duplicates(jobs, attempts, window),
        damaged_jobs(jobs, window),
        damaged_attempts(attempts, window),
    )


def together(*findings: DataFrame) -> DataFrame:
    """Findings of several checks."""
    return reduce(DataFrame.unionAll, findings)

"""Rows that cannot be right: they are told, and prove nothing."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.audit.catalog import Catalog
from penstock.pipeline.audit.findings import FindingKind, as_findings
from penstock.pipeline.audit.rows import attempt_damage, job_damage
from penstock.pipeline.audit.window import AuditWindow


def damaged_jobs(jobs: DataFrame, window: AuditWindow) -> DataFrame:
    """Jobs that say what cannot be."""
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
    """Attempts that say what cannot be."""
    return as_findings(
        attempts.withColumn("damage", attempt_damage(window)).where(f.col("damage").isNotNull()),
        FindingKind.DAMAGED,
        job_id=f.col("job_id"),
        number=f.col("number"),
        at_ms=f.col("at_ms"),
        end_ms=f.col("end_ms"),
        detail=f.col("damage"),
    )


def damaged_subscriptions(spark: SparkSession, catalog: Catalog) -> DataFrame:
    """Subscriptions that nothing can be matched with."""
    rows = spark.createDataFrame(list(catalog.damaged.items()), "id string, reason string")
    return as_findings(
        rows,
        FindingKind.DAMAGED,
        subscription_id=f.col("id"),
        detail=f.concat(f.lit("the subscription: "), "reason"),
    )

"""The audit as a function of DataFrames: the guarantees that were broken in a window, one row for each breach."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from penstock.pipeline.audit.catalog import catalog_of
from penstock.pipeline.audit.checks import checked, together
from penstock.pipeline.audit.damaged import damaged_subscriptions
from penstock.pipeline.audit.lost import events_of, lost
from penstock.pipeline.audit.rows import attempts_of, jobs_of
from penstock.pipeline.audit.screen import COUNT, SUSPECT_BUCKET, SUSPECT_GROUP, SUSPECT_JOB, screen
from penstock.pipeline.audit.screen_rows import hash_of
from penstock.pipeline.audit.window import AuditWindow


class Audited(NamedTuple):
    """What an audit saw."""

    findings: DataFrame
    counts: Mapping[str, int]
    """How many jobs there were of each status, attempts of each outcome, and deliveries that nobody wrote down."""


def audit_frame(
    events: DataFrame, subscriptions: DataFrame, jobs: DataFrame, attempts: DataFrame, window: AuditWindow
) -> Audited:
    """Audit a window of any DataFrames with the columns of `schemas`.

    All groups are screened at once, in an action; the findings are lazy. `events` may have a column `fanned_out`:
    those that still wait for their jobs have lost nothing.
    """
    catalog = catalog_of(subscriptions.collect(), window)
    events, jobs, attempts = events_of(events, window), jobs_of(jobs, window), attempts_of(attempts, window)
    seen = screen(events, catalog, jobs, attempts, window).localCheckpoint()
    counts = {row["name"]: row["total"] for row in _totals(seen) if row["total"]}
    buckets = _buckets(seen) if counts.pop(SUSPECT_BUCKET, 0) else []
    findings = [lost(events, catalog, jobs, window, buckets)]
    if catalog.damaged:
        findings.append(damaged_subscriptions(events.sparkSession, catalog))
    if counts.pop(SUSPECT_GROUP, 0) + counts.pop(SUSPECT_JOB, 0):
        findings.append(checked(*_suspects(jobs, attempts, seen), window))
    return Audited(together(*findings), counts)


def _totals(seen: DataFrame) -> list[Row]:
    name = f.coalesce(f.col("name"), f.col("what")).alias("name")
    number = f.when(f.col("what") == COUNT, f.col("key")).otherwise(1)
    # A handful of rows in each share: a task for each would take longer than the rest.
    few = seen.coalesce(seen.sparkSession.sparkContext.defaultParallelism)
    return few.groupBy(name).agg(f.sum(number).alias("total")).collect()


def _buckets(seen: DataFrame) -> list[int]:
    return [row["key"] for row in seen.where(f.col("what") == SUSPECT_BUCKET).collect()]


def _suspects(jobs: DataFrame, attempts: DataFrame, seen: DataFrame) -> tuple[DataFrame, DataFrame]:
    """All jobs of the suspect groups with their attempts, and attempts without a job. Kept: all checks ask for them."""
    keys = seen.select("what", "key").distinct()
    groups = keys.where(f.col("what") == SUSPECT_GROUP).select("key")
    of_groups = (
        jobs.withColumn("key", hash_of("group_key")).join(groups, "key", "left_semi").drop("key").localCheckpoint()
    )
    known = of_groups.select(hash_of("id").alias("key"))
    wanted = known.unionAll(keys.where(f.col("what") == SUSPECT_JOB).select("key"))
    of_jobs = attempts.withColumn("key", hash_of("job_id")).join(wanted, "key", "left_semi").drop("key")
    return of_groups, of_jobs.localCheckpoint()

"""The audit as a function of DataFrames: the guarantees that were broken in a window, one row for each breach.

All checks of jobs and attempts, one after the other.

What an audit asks of a database beside the tables: which events wait for their jobs, and who was changed when.

Runs the audit of a database.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import reduce
from typing import NamedTuple

import msgspec
import pyarrow
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from penstock.domain.limits import MIB
from penstock.events.api import PATH
from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.history.audit.catalog import catalog_of
from penstock.history.audit.deliveries import (
    damaged_attempts,
    damaged_jobs,
    damaged_subscriptions,
    duplicates,
    undelivered,
    unknown_jobs,
)
from penstock.history.audit.findings import WAITING_EVENTS, AuditResult, result_of
from penstock.history.audit.lost import FANNED_OUT, events_of, lost
from penstock.history.audit.order import overlaps, overtaken
from penstock.history.audit.packed_rows import PARTS
from penstock.history.audit.screen import COUNT, SUSPECT_BUCKET, SUSPECT_GROUP, SUSPECT_JOB, screen
from penstock.history.audit.screen_rows import hash_of
from penstock.history.audit.window import ATTEMPT_COLUMNS, JOB_COLUMNS, AuditWindow, attempts_of, jobs_of
from penstock.history.errors import AuditFailed
from penstock.spark.database import SparkDatabase
from penstock.spark.errors import reason_of
from penstock.spark.sources.reading import reading_of
from penstock.spark.sources.statements import literal
from penstock.spark.tables import Tables


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


_WAITING = "SELECT id FROM {}events WHERE fanned_out = 0 AND id > {} ORDER BY id LIMIT {}"
_CHANGED = "SELECT target, max(at_ms) FROM {}changes WHERE action = '{}' GROUP BY target"
_CHANGE = f"PATCH {PATH}/{{id}}"
_ROWS_AT_ONCE = 10_000
_target = msgspec.json.Decoder(dict[str, str]).decode


def waiting_events(spark: SparkSession, database: SparkDatabase) -> DataFrame:
    """The ids of events that were not fanned out yet; read by a task, as there may be many."""

    def read(_: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        last = ""
        with closing(reading_of(database)) as reading:
            while True:
                text = _WAITING.format(reading.prefix, literal(last, database.dialect), _ROWS_AT_ONCE)
                ids = [event_id for (event_id,) in reading.rows(text)]
                yield pyarrow.RecordBatch.from_arrays([pyarrow.array(ids, pyarrow.string())], ["id"])
                if len(ids) < _ROWS_AT_ONCE:
                    return
                last = ids[-1]

    return spark.range(1, numPartitions=1).mapInArrow(read, "id string")


def changed_subscriptions(database: SparkDatabase) -> dict[str, int]:
    """When subscriptions were changed last, as far as the API wrote it down."""
    with closing(reading_of(database)) as reading:
        rows = reading.rows(_CHANGED.format(reading.prefix, _CHANGE))
    return {_target(target)["id"]: at_ms for target, at_ms in rows}


SPARK_SETTINGS = {
    # Many small shares while nobody knows how much there is; Spark joins those that turn out to be too small.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(PARTS),
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "48m",
    # What waits to be written to a shuffle is much: on the heap, each collection would find it there, and heaps are
    # small here.
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "512m",
    # To know how large a batch is, Spark would ask all its columns after every row. Rows of an audit are small.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    # Parcels are hashes and times, which hardly compress; and a task writes its rows once, sorted in memory, instead of
    # to a file for each share and then to one of all.
    "spark.shuffle.compress": "false",
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    # Arrays of megabytes come and go. By default glibc gives the memory of each back, and to get new one takes longer
    # than what is done with it. Other C libraries do not know these.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(1024 * MIB),
}
"""What suits an audit, unless somebody says otherwise."""

EXAMPLES = 20


def audit_database(
    spark: SparkSession, database: SparkDatabase, window: AuditWindow, examples: int = EXAMPLES
) -> AuditResult:
    """Audit what a database says of a window that has settled, with so many examples of each kind of finding."""
    changed_ms = {**changed_subscriptions(database), **window.changed_ms}
    window = msgspec.structs.replace(window, changed_ms=changed_ms)
    tables = Tables(spark, database)
    # Before jobs are read: one that is fanned out in between would seem to have lost its jobs.
    waiting = waiting_events(spark, database).persist()
    try:
        waits = waiting.count()
        # Once each: all checks see the same rows, and the database is asked only once.
        jobs, attempts = _jobs(tables, window).persist(), _attempts(tables, window).persist()
        audited = audit_frame(_events(tables, waiting, window), tables.subscriptions(), jobs, attempts, window)
        return result_of(audited.findings, {**audited.counts, WAITING_EVENTS: waits}, window, examples)
    except PySparkException as error:
        raise AuditFailed(f"the audit of {database.place} failed: {reason_of(error)}") from error
    finally:
        spark.catalog.clearCache()


def _jobs(tables: Tables, window: AuditWindow) -> DataFrame:
    if window.since_ms <= 0:
        return _all_jobs(tables, window)
    # Apart, because a database can look for each of these by an index, but not for one or the other; and each read of
    # its own, because Spark would push the filters of the one to the other, too.
    finished = f.col("finished_at_ms")
    late = _all_jobs(tables, window).where(finished >= window.jobs_since_ms)
    return late.unionAll(_all_jobs(tables, window).where(finished.isNull()))


def _all_jobs(tables: Tables, window: AuditWindow) -> DataFrame:
    jobs = tables.jobs(JOB_COLUMNS)
    return jobs if window.subscription_id is None else jobs.where(f.col("subscription_id") == window.subscription_id)


def _attempts(tables: Tables, window: AuditWindow) -> DataFrame:
    attempts = tables.attempts(ATTEMPT_COLUMNS)
    return attempts.where(f.col("at_ms") >= window.attempts_since_ms) if window.since_ms > 0 else attempts


def _events(tables: Tables, waiting: DataFrame, window: AuditWindow) -> DataFrame:
    events = tables.events(EVENT_COLUMNS).where(f.col("received_ms") >= window.since_ms)
    still = waiting.select("id", f.lit(False).alias(FANNED_OUT))
    return events.join(still, "id", "left").withColumn(FANNED_OUT, f.coalesce(f.col(FANNED_OUT), f.lit(True)))

"""Audits a window of a database, or of any DataFrames: one row for each breach of a guarantee."""

from collections.abc import Iterator, Mapping, Sequence
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
from penstock.events.fan_out.spark_plan import DataOf
from penstock.events.fan_out.spark_task import process_repository
from penstock.history.audit.catalog import catalog_of
from penstock.history.audit.deliveries import (
    damaged_attempts,
    damaged_jobs,
    damaged_subscriptions,
    duplicates,
    undelivered,
    unknown_jobs,
)
from penstock.history.audit.findings import WAITING_EVENTS, AuditResult, checkpointed, result_of
from penstock.history.audit.lateness import lateness
from penstock.history.audit.lost import FANNED_OUT, events_of, lost
from penstock.history.audit.order import overlaps, overtaken
from penstock.history.audit.packed_rows import PARTS
from penstock.history.audit.screen import COUNT, SUSPECT_BUCKET, SUSPECT_GROUP, SUSPECT_JOB, screen
from penstock.history.audit.screen_rows import hash_of
from penstock.history.audit.window import ATTEMPT_COLUMNS, JOB_COLUMNS, AuditWindow, attempts_of, jobs_of
from penstock.history.errors import AuditFailed
from penstock.spark.database import SparkDatabase
from penstock.spark.errors import reason_of
from penstock.spark.sources.database_reader import reader_for
from penstock.spark.sources.statements import literal
from penstock.spark.tables import Tables

SPARK_SETTINGS = {
    # Many small shares while the amount is unknown; Spark joins those that turn out too small.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(PARTS),
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "48m",
    # Shuffle buffers are large; on a small heap, every garbage collection would visit them.
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "512m",
    # To limit a batch by bytes, Spark measures all its columns after every row. Rows of an audit are small.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    # Packed rows are hashes and times, which hardly compress. Sorting in memory lets a task write its rows once,
    # instead of to a file for each share and then to one for all.
    "spark.shuffle.compress": "false",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    # By default, glibc returns the memory of each large array, and allocating it again takes longer than using it.
    # Other C libraries ignore these settings.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(1024 * MIB),
}
"""Defaults of an audit."""

EXAMPLES = 20
_WAITING = "SELECT id FROM {}events WHERE fanned_out = 0 AND id > {} ORDER BY id LIMIT {}"
_CHANGED = "SELECT target, max(at_ms) FROM {}changes WHERE action = '{}' GROUP BY target"
_CHANGE = f"PATCH {PATH}/{{id}}"
_ROWS_AT_ONCE = 10_000
_target = msgspec.json.Decoder(dict[str, str]).decode


def audit_database(
    spark: SparkSession, database: SparkDatabase, window: AuditWindow, examples: int = EXAMPLES
) -> AuditResult:
    """Audit a window that has settled, with up to `examples` findings of each kind."""
    changed_ms = {**changed_subscriptions(database), **window.changed_ms}
    window = msgspec.structs.replace(window, changed_ms=changed_ms)
    tables = Tables(spark, database)
    # Before jobs are read, because an event that is fanned out in between would seem to have lost its jobs.
    waiting = waiting_events(spark, database).persist()
    try:
        waits = waiting.count()
        # Persisted, so that all checks see the same rows and the database is read once.
        jobs, attempts = _jobs(tables, window).persist(), _attempts(tables, window).persist()
        events, data_of = _events(tables, waiting, window), StoredData(database)
        audited = audit_frame(events, tables.subscriptions(), jobs, attempts, window, data_of)
        names = {row["id"]: row["name"] for row in tables.subscriptions().select("id", "name").collect()}
        late = lateness(jobs_of(jobs, window), window, names)
        return result_of(audited.findings, {**audited.counts, WAITING_EVENTS: waits}, window, examples, late)
    except PySparkException as error:
        raise AuditFailed(f"the audit of {database.place} failed: {reason_of(error)}") from error
    finally:
        spark.catalog.clearCache()


def _jobs(tables: Tables, window: AuditWindow) -> DataFrame:
    if window.since_ms <= 0:
        return _all_jobs(tables, window)
    # Two queries, because a database has an index for each condition but not for both. They read separate frames,
    # because Spark would push the filter of one to the other.
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


class StoredData:
    """Reads the data of events from the database, in tasks; events that have left it have none."""

    def __init__(self, database: SparkDatabase) -> None:
        self._database = database

    def __call__(self, event_ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the data of events by their ids."""
        return process_repository(self._database).data_of(event_ids)


class Audited(NamedTuple):
    """The result of an audit."""

    findings: DataFrame
    counts: Mapping[str, int]
    """How many jobs there were of each status, attempts of each outcome, and unrecorded deliveries."""


def audit_frame(
    events: DataFrame,
    subscriptions: DataFrame,
    jobs: DataFrame,
    attempts: DataFrame,
    window: AuditWindow,
    data_of: DataOf | None = None,
) -> Audited:
    """Audit a window of any DataFrames with the columns of `schemas`.

    Without `data_of`, jobs of subscriptions whose filter reads the data of events are not missed.

    An action screens all groups at once; the findings are lazy. `events` may have a column `fanned_out`: events that
    still wait for their jobs have lost nothing.
    """
    catalog = catalog_of(subscriptions.collect(), window, data_of)
    events, jobs, attempts = events_of(events, window), jobs_of(jobs, window), attempts_of(attempts, window)
    seen = checkpointed(screen(events, catalog, jobs, attempts, window))
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
    # Each share has a few rows, which are not worth a task.
    few = seen.coalesce(seen.sparkSession.sparkContext.defaultParallelism)
    return few.groupBy(name).agg(f.sum(number).alias("total")).collect()


def _buckets(seen: DataFrame) -> list[int]:
    return [row["key"] for row in seen.where(f.col("what") == SUSPECT_BUCKET).collect()]


def _suspects(jobs: DataFrame, attempts: DataFrame, seen: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return all jobs of the suspect groups with their attempts, and attempts without a job, for all checks."""
    keys = seen.select("what", "key").distinct()
    groups = keys.where(f.col("what") == SUSPECT_GROUP).select("key")
    of_groups = checkpointed(jobs.withColumn("key", hash_of("group_key")).join(groups, "key", "left_semi").drop("key"))
    known = of_groups.select(hash_of("id").alias("key"))
    wanted = known.unionAll(keys.where(f.col("what") == SUSPECT_JOB).select("key"))
    of_jobs = attempts.withColumn("key", hash_of("job_id")).join(wanted, "key", "left_semi").drop("key")
    return of_groups, checkpointed(of_jobs)


def checked(jobs: DataFrame, attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Return the breaches in the jobs and attempts of a window; of a group, all rows are given or none."""
    if window.subscription_id is not None:
        # The jobs of other subscriptions were not read, so their attempts would seem to have none.
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
    """Return the findings of several checks."""
    return reduce(DataFrame.unionAll, findings)


def waiting_events(spark: SparkSession, database: SparkDatabase) -> DataFrame:
    """Return the ids of events that were not fanned out yet; read by a task, because there may be many."""

    def read(_: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        last = ""
        with closing(reader_for(database)) as reader:
            while True:
                text = _WAITING.format(reader.prefix, literal(last, database.dialect), _ROWS_AT_ONCE)
                ids = [event_id for (event_id,) in reader.rows(text)]
                yield pyarrow.RecordBatch.from_arrays([pyarrow.array(ids, pyarrow.string())], ["id"])
                if len(ids) < _ROWS_AT_ONCE:
                    return
                last = ids[-1]

    return spark.range(1, numPartitions=1).mapInArrow(read, "id string")


def changed_subscriptions(database: SparkDatabase) -> dict[str, int]:
    """Return when subscriptions were last changed through the API."""
    with closing(reader_for(database)) as reader:
        rows = reader.rows(_CHANGED.format(reader.prefix, _CHANGE))
    return {_target(target)["id"]: at_ms for target, at_ms in rows}

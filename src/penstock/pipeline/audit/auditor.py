"""Runs the audit of a database."""

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.limits import MIB
from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.pipeline.audit.audit import audit_frame
from penstock.pipeline.audit.errors import AuditFailed
from penstock.pipeline.audit.lost import FANNED_OUT
from penstock.pipeline.audit.parcels import PARTS
from penstock.pipeline.audit.reading import changed_subscriptions, waiting_events
from penstock.pipeline.audit.result import WAITING_EVENTS, AuditResult, result_of
from penstock.pipeline.audit.rows import ATTEMPT_COLUMNS, JOB_COLUMNS
from penstock.pipeline.audit.window import AuditWindow
from penstock.pipeline.database import Database
from penstock.pipeline.failure import reason_of
from penstock.pipeline.tables import Tables

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
    spark: SparkSession, database: Database, window: AuditWindow, examples: int = EXAMPLES
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

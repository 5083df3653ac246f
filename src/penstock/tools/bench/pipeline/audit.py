"""The audit of a clean history in Parquet: attempts a second, with the heap that Penstock gives Spark by default.

A history of deliveries as DataFrames, for the audit: nothing lost, keys in order, one job in ten tried twice.
"""

from pathlib import Path

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.ids import encode_tsid
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.history.audit.audit import audit_frame
from penstock.history.audit.findings import AuditResult, result_of
from penstock.history.audit.window import AuditWindow
from penstock.spark.schemas import SUBSCRIPTIONS
from penstock.tools.bench.servers import median_rate

SUBSCRIBERS = 5
_FROM_MS = 1_600_000_000_000
# Between two events of a group: its delivery, if need be its second attempt, is over before the next one comes.
_GROUPS = 10_000
_STEP_MS = 1
_RETRIED = 10
_LASTS_MS = 20


class SampleHistory(msgspec.Struct, frozen=True):
    """The four tables, and when the last of it was over."""

    events: DataFrame
    subscriptions: DataFrame
    jobs: DataFrame
    attempts: DataFrame
    until_ms: int


def history(spark: SparkSession, directory: Path, attempts: int) -> SampleHistory:
    """Return about that many attempts, read from Parquet; five subscriptions want every event."""
    events = max(1, attempts * _RETRIED // (_RETRIED + 1) // SUBSCRIBERS)
    frames = {"events": _events(spark, events), "jobs": _jobs(spark, events), "attempts": _attempts(spark, events)}
    for name, frame in frames.items():
        frame.write.parquet(f"{directory}/{name}")
    kept = {name: spark.read.parquet(f"{directory}/{name}") for name in frames}
    end_ms = _FROM_MS + events * _STEP_MS + 60_000
    return SampleHistory(kept["events"], _subscriptions(spark), kept["jobs"], kept["attempts"], end_ms)


def _subscriptions(spark: SparkSession) -> DataFrame:
    mode = DispatchMode.BLOCK_ON_ERROR.value
    rows = [
        (
            encode_tsid(number),
            "",
            f"subscriber-{number}",
            "orders:**",
            '{"conditions":[]}',
            f"https://subscriber-{number}.example/hook",
            DEFAULT_DISPATCH_POOL,
            mode,
            False,
        )
        for number in range(SUBSCRIBERS)
    ]
    return spark.createDataFrame(rows, SUBSCRIPTIONS)


def _events(spark: SparkSession, count: int) -> DataFrame:
    number = f.col("id")
    return _range(spark, count).select(
        _id_of(number).alias("id"),
        f.lit("").alias("tenant"),
        f.lit("/shop").alias("source"),
        number.cast("string").alias("external_id"),
        f.lit("orders:created").alias("type"),
        f.lit(None).cast("string").alias("subject"),
        f.lit("application/json").alias("content_type"),
        _group(number).alias("group_name"),
        f.lit("{}").alias("attributes"),
        _received_ms(number).alias("received_ms"),
    )


def _jobs(spark: SparkSession, events: int) -> DataFrame:
    event, subscriber = _event(), _subscriber()
    tries = _tries()
    return _range(spark, events * SUBSCRIBERS).select(
        _job_id().alias("id"),
        _id_of(event).alias("event_id"),
        _id_of(subscriber).alias("subscription_id"),
        f.concat_ws(":", _id_of(subscriber), _group(event)).alias("group_key"),
        f.lit(99).cast("long").alias("sequence"),
        f.lit(DispatchMode.BLOCK_ON_ERROR.value).alias("mode"),
        f.lit("COMPLETED").alias("status"),
        f.lit(None).cast("long").alias("scheduled_for_ms"),
        tries.alias("delivery_count"),
        _received_ms(event).alias("created_at_ms"),
        (_begins_ms(event, tries) + _LASTS_MS).alias("finished_at_ms"),
    )


def _attempts(spark: SparkSession, events: int) -> DataFrame:
    made = _range(spark, events * SUBSCRIBERS).withColumn("number", f.explode(f.sequence(f.lit(1), _tries())))
    number = f.col("number").cast("long")
    delivered = f.when(number == _tries(), AttemptOutcome.DELIVERED.value).otherwise(AttemptOutcome.FAILED.value)
    return made.select(
        _job_id().alias("job_id"),
        number.alias("number"),
        delivered.alias("outcome"),
        _begins_ms(_event(), number).alias("at_ms"),
        f.lit(_LASTS_MS).cast("long").alias("duration_ms"),
    )


def _range(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=2 * spark.sparkContext.defaultParallelism)


def _event() -> Column:
    return f.floor(f.col("id") / SUBSCRIBERS)


def _subscriber() -> Column:
    return f.col("id") % SUBSCRIBERS


def _job_id() -> Column:
    return f.concat_ws("-", _id_of(_event()), _id_of(_subscriber()))


def _tries() -> Column:
    """How often the job of a row is tried."""
    return f.when(f.col("id") % _RETRIED == 0, 2).otherwise(1).cast("long")


def _begins_ms(event: Column, attempt: Column) -> Column:
    return _received_ms(event) + attempt * 2 * _LASTS_MS


def _received_ms(event: Column) -> Column:
    return event * _STEP_MS + _FROM_MS


def _group(event: Column) -> Column:
    return f.format_string("order-%d", event % _GROUPS)


def _id_of(number: Column) -> Column:
    return f.lpad(number.cast("string"), 13, "0")


def audited_per_s(spark: SparkSession, directory: Path, attempts: int, rounds: int) -> float:
    """Audit, and see to it that the audit looked at every attempt and found nothing."""
    made = history(spark, directory, attempts)
    count = made.attempts.count()
    window = AuditWindow(until_ms=made.until_ms, taken_ms=made.until_ms)

    def audit() -> int:
        audited = audit_frame(made.events, made.subscriptions, made.jobs, made.attempts, window)
        result = result_of(audited.findings, audited.counts, window, examples=1)
        spark.catalog.clearCache()
        if not result.is_clean or _looked_at(result) != count:
            raise RuntimeError(f"the audit saw {_looked_at(result):,} of {count:,} attempts, and {result.findings}")
        return count

    audit()
    return median_rate(rounds, audit)


def _looked_at(result: AuditResult) -> int:
    return sum(result.counts.get(outcome.value, 0) for outcome in AttemptOutcome)

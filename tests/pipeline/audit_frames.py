"""Histories as DataFrames, and findings as values."""

from collections.abc import Iterable, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.domain.event import StoredEvent
from penstock.domain.subscription import Subscription
from penstock.spark.schemas import EVENTS, SUBSCRIPTIONS
from tests.pipeline.audit_histories import History
from tests.pipeline.audit_model import AttemptRow, Found, JobRow


def _schema(row: type[msgspec.Struct]) -> StructType:
    """The columns of a row, all of which may be missing: damaged tables are read too."""
    fields = msgspec.structs.fields(row)
    numbers = ("sequence", "number", "delivery_count")
    return StructType(
        [
            StructField(
                field.name, LongType() if field.name.endswith("_ms") or field.name in numbers else StringType(), True
            )
            for field in fields
        ]
    )


def job_frame(spark: SparkSession, jobs: Iterable[JobRow]) -> DataFrame:
    """Rows of jobs."""
    return spark.createDataFrame([msgspec.structs.astuple(job) for job in jobs], _schema(JobRow))


def attempt_frame(spark: SparkSession, attempts: Iterable[AttemptRow]) -> DataFrame:
    """Rows of attempts."""
    return spark.createDataFrame([msgspec.structs.astuple(each) for each in attempts], _schema(AttemptRow))


def frames(spark: SparkSession, histories: Sequence[History]) -> tuple[DataFrame, DataFrame]:
    """The jobs and the attempts of many histories."""
    return (
        job_frame(spark, [job for history in histories for job in history.jobs]),
        attempt_frame(spark, [attempt for history in histories for attempt in history.attempts]),
    )


def event_frame(spark: SparkSession, events: Iterable[StoredEvent], attributes: str | None = None) -> DataFrame:
    """Rows of events; all with these attributes if they are given, which may be no JSON."""
    rows = [
        {
            **msgspec.to_builtins(event, builtin_types=(bytes,)),
            "group_name": event.group,
            "attributes": msgspec.json.encode(event.attributes).decode() if attributes is None else attributes,
            "position": place,
        }
        for place, event in enumerate(events)
    ]
    return spark.createDataFrame([tuple(row[name] for name in EVENTS.names) for row in rows], EVENTS)


def subscription_frame(spark: SparkSession, subscriptions: Iterable[Subscription]) -> DataFrame:
    """Rows of subscriptions."""
    rows = [
        (
            each.id,
            each.tenant,
            each.name,
            each.pattern,
            msgspec.json.encode(each.filter).decode(),
            each.target,
            each.pool_code,
            each.mode.value,
            each.paused,
        )
        for each in subscriptions
    ]
    return spark.createDataFrame(rows, SUBSCRIPTIONS)


def no_events(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """No events and no subscriptions."""
    return spark.createDataFrame([], EVENTS), spark.createDataFrame([], SUBSCRIPTIONS)


def found_in(findings: DataFrame) -> list[Found]:
    """Findings as the model tells them, sorted."""
    rows = findings.select(*Found._fields).collect()
    return sorted((Found(*row) for row in rows), key=str)

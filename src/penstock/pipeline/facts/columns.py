"""The columns of delivery facts, and where an attempt stands among all."""

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from penstock.events.statistics.minutes import Place

_TEXT = StringType()
_NUMBER = LongType()

ORIGIN = StructType(
    [
        StructField("tenant", _TEXT),
        StructField("type", _TEXT),
        StructField("event_id", _TEXT),
        StructField("subscription_id", _TEXT),
        StructField("group_key", _TEXT),
        StructField("pool", _TEXT),
        StructField("target", _TEXT),
        StructField("scheduled_for_ms", _NUMBER),
        StructField("created_at_ms", _NUMBER),
    ]
)
"""What is taken over from an attempt's job: it never changes there, so that a repeated batch gives the same."""

DAY = "day"
"""A fact's day in UTC, as 2026-11-01: the lake's partitions."""

FACTS = StructType(
    [
        StructField("job_id", _TEXT),
        StructField("number", _NUMBER),
        StructField("outcome", _TEXT),
        StructField("at_ms", _NUMBER),
        StructField("duration_ms", _NUMBER),
        StructField("was_sent", BooleanType()),
        StructField("status_code", _NUMBER),
        StructField("reason", _TEXT),
        StructField("waited_ms", _NUMBER),
        StructField("tenant", _TEXT),
        StructField("type", _TEXT),
        StructField("event_id", _TEXT),
        StructField("subscription_id", _TEXT),
        StructField("group_key", _TEXT),
        StructField("pool", _TEXT),
        StructField("endpoint", _TEXT),
        StructField("created_at_ms", _NUMBER),
        StructField("repaired", BooleanType()),
        StructField("position", _NUMBER),
        StructField(DAY, _TEXT),
    ]
)


def place() -> Column:
    """A row's `Place`, as a column that is ordered like it."""
    return f.struct(
        f.coalesce("position", f.lit(0)).alias("position"),
        f.coalesce("job_id", f.lit("")).alias("job_id"),
        f.coalesce("number", f.lit(0)).alias("number"),
        f.coalesce("at_ms", f.lit(0)).alias("at_ms"),
    )


def is_after(known: Place) -> Column:
    """Whether a row stands behind a place."""
    bound = f.struct(
        f.lit(known.position).cast("bigint").alias("position"),
        f.lit(known.job_id).alias("job_id"),
        f.lit(known.number).cast("bigint").alias("number"),
        f.lit(known.at_ms).cast("bigint").alias("at_ms"),
    )
    return place() > bound

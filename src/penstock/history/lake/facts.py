"""Delivery facts as DataFrames: their columns, and the rules of `events/statistics/facts.py`."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import msgspec
import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from penstock.engine.store.postgres_address import PostgresAddress
from penstock.events.statistics import (
    DAY_MS,
    EARLIEST_MS,
    ENDPOINT,
    LONGEST_MS,
    LONGEST_WAIT_MS,
    NAME_CHARACTERS,
    OUTCOMES,
    REASON_CHARACTERS,
    latest_ms,
)
from penstock.events.store import STATUS_OF, Dialect, Row
from penstock.spark.database import SparkDatabase
from penstock.spark.workers import freeze_long_lived_objects

_TEXT = StringType()
_NUMBER = LongType()
_BUSY_TIMEOUT_S = 10.0

DAY = "day"
"""A fact's day in UTC, such as 2026-11-01."""

FLAW = "flaw"

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
"""What a fact takes from its attempt's job: it never changes, so that a repeated batch gives the same facts."""

DETAILS = StructType(
    [
        StructField("key", _TEXT),
        StructField("subscription", _TEXT),
        StructField("event_time_ms", _NUMBER),
        StructField("event_bytes", _NUMBER),
        StructField("job_status", _TEXT),
        StructField("job_attempts", _NUMBER),
        StructField("job_finished_ms", _NUMBER),
        StructField("job_position", _NUMBER),
    ]
)
"""What the lake takes beside: names, sizes and the job's state, as they are when the batch is read."""

LOOKED_UP = StructType([StructField("id", StringType()), *ORIGIN.fields, *DETAILS.fields])

_STATES = " ".join(f"WHEN {code} THEN '{status.value}'" for code, status in enumerate(STATUS_OF))
_JOB = f"""
SELECT {", ".join(["id", *ORIGIN.names])}, group_name, payload, state, attempt_count, finished_at_ms
FROM {{table}} WHERE id {{among}}
"""
_LOOK_UP = f"""
SELECT {", ".join(f"j.{name}" for name in ["id", *ORIGIN.names])}, j.group_name, s.name, e.time_ms,
    coalesce({{size}}(e.data), {{size}}(j.payload)), CASE j.state {_STATES} END, j.attempt_count, j.finished_at_ms,
    (SELECT max(a.position) FROM attempts AS a WHERE a.job_id = j.id)
FROM ({_JOB.format(table="jobs", among="{among}")} UNION ALL {_JOB.format(table="archived_jobs", among="{among}")}) AS j
LEFT JOIN events AS e ON e.id = j.event_id
LEFT JOIN subscriptions AS s ON s.id = j.subscription_id
"""
_STATEMENTS = {
    Dialect.SQLITE: _LOOK_UP.format(among="IN (SELECT value FROM json_each(:ids))", size="length"),
    Dialect.POSTGRES: _LOOK_UP.format(among="= ANY(%(ids)s)", size="octet_length"),
}

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


def with_flaws(attempts: DataFrame, now_ms: int) -> DataFrame:
    """Return attempts with the column `flaw`: why one cannot be counted, null if it can."""
    flaw = (
        f.when(_any_missing(), "its key, its time or its outcome is missing")
        .when(~f.col("outcome").isin(*OUTCOMES), "its outcome is unknown")
        .when(f.col("at_ms") < EARLIEST_MS, "it is from before the year 2000")
        .when(f.col("at_ms") > latest_ms(now_ms), "it is more than a day in the future")
    )
    return attempts.withColumn(FLAW, flaw)


def as_facts(attempts: DataFrame) -> DataFrame:
    """Return the facts of attempts with the columns `flaw` and `ORIGIN`, and `DETAILS` if they have them."""
    duration_ms = f.least(f.greatest(f.coalesce("duration_ms", f.lit(0)), f.lit(0)), f.lit(LONGEST_MS))
    day = f.date_from_unix_date(((f.col("at_ms") - f.col("at_ms") % DAY_MS) / DAY_MS).cast("int")).cast("string")
    shape = {
        "duration_ms": duration_ms,
        "was_sent": f.col("status_code").isNotNull() | (duration_ms > 0),
        "reason": f.when(f.col("outcome") != "DELIVERED", _reason()),
        "waited_ms": f.when(f.col("number") == 1, _waited_ms()),
        "endpoint": endpoint(f.col("target")),
        "repaired": ~f.col("duration_ms").eqNullSafe(duration_ms),
        # The time of a flawed attempt may be outside the calendar.
        DAY: f.when(f.col(FLAW).isNull(), day),
    }
    beside = [name for name in DETAILS.names if name in attempts.columns]
    return attempts.select(*(shape.get(name, f.col(name)).alias(name) for name in FACTS.names), FLAW, *beside)


def endpoint(target: Column) -> Column:
    """Return a target without user name, query and fragment."""
    parts = f.concat(f.regexp_extract(target, ENDPOINT, 1), f.regexp_extract(target, ENDPOINT, 2))
    return named(f.when(target.rlike(ENDPOINT), parts).otherwise(f.regexp_extract(target, "^([^?#]*)", 1)))


def named(text: Column) -> Column:
    """Return a text as a name in statistics."""
    return f.replace(f.substring(text, 1, NAME_CHARACTERS), f.lit("\0"), f.lit("\N{REPLACEMENT CHARACTER}"))


def _any_missing() -> Column:
    return f.greatest(*(f.col(name).isNull() for name in ("job_id", "number", "outcome", "at_ms")))


def _reason() -> Column:
    answered = f.concat(f.lit("answered "), f.col("status_code").cast("string"))
    return f.substring(f.coalesce(f.col("error"), answered, f.lit("no reason was recorded")), 1, REASON_CHARACTERS)


def _waited_ms() -> Column:
    # A damaged time may be so old that the difference overflows 64 bits.
    waited_ms = f.try_subtract(f.col("at_ms"), f.coalesce("scheduled_for_ms", "created_at_ms"))
    bounded = f.least(f.greatest(f.coalesce(waited_ms, f.lit(LONGEST_WAIT_MS)), f.lit(0)), f.lit(LONGEST_WAIT_MS))
    return f.when(f.col("created_at_ms").isNotNull(), bounded)


def with_origins(attempts: DataFrame, database: SparkDatabase) -> DataFrame:
    """Return attempts with the columns `ORIGIN` and `DETAILS`, null where the job no longer exists.

    Looking up jobs by key costs in proportion to the attempts; a join would read all jobs for each batch.
    """
    schema = StructType([*attempts.schema.fields, *ORIGIN.fields, *DETAILS.fields])
    wanted = to_arrow_schema(schema)

    def look_up(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            ids = batch.column("job_id").drop_null().unique().to_pylist()
            jobs = _table(origin_rows(database, ids))
            found = pyarrow.Table.from_batches([batch]).join(jobs, "job_id", "id", "left outer")
            yield from found.select(wanted.names).cast(wanted).to_batches()
        freeze_long_lived_objects("looking up")

    return attempts.mapInArrow(look_up, schema)


def origin_rows(database: SparkDatabase, job_ids: Sequence[str]) -> list[Row]:
    """Return the id and the columns `ORIGIN` and `DETAILS` of jobs, archived or not."""
    statement = _STATEMENTS[database.dialect]
    if database.dialect is Dialect.POSTGRES:
        with closing(PostgresAddress(database.url).connect(database.schema)) as session:
            return session.execute(statement.encode(), {"ids": list(job_ids)}).fetchall()
    with closing(sqlite3.connect(f"{database.path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S)) as connection:
        # A damaged text is better than none.
        connection.text_factory = lambda text: text.decode(errors="replace")
        return connection.execute(statement, {"ids": msgspec.json.encode(job_ids).decode()}).fetchall()


def _table(rows: Sequence[Row]) -> pyarrow.Table:
    schema = to_arrow_schema(LOOKED_UP)
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)

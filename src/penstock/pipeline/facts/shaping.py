"""From attempts and their jobs to delivery facts: the rules of `events/statistics/facts.py` for DataFrames."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.events.statistics.facts import (
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
from penstock.pipeline.facts.columns import DAY, FACTS

FLAW = "flaw"


def judged(attempts: DataFrame, now_ms: int) -> DataFrame:
    """Attempts with the column `flaw`: why one cannot be counted, null if it can."""
    flaw = (
        f.when(_any_missing(), "a part of its key, its time or its outcome is missing")
        .when(~f.col("outcome").isin(*OUTCOMES), "its outcome is none that Penstock knows")
        .when(f.col("at_ms") < EARLIEST_MS, "it was made before the year 2000")
        .when(f.col("at_ms") > latest_ms(now_ms), "it lies more than a day in the future")
    )
    return attempts.withColumn(FLAW, flaw)


def shaped(attempts: DataFrame) -> DataFrame:
    """Facts of judged attempts that have the columns `ORIGIN` of their jobs; the flawed are told by `flaw`."""
    duration_ms = f.least(f.greatest(f.coalesce("duration_ms", f.lit(0)), f.lit(0)), f.lit(LONGEST_MS))
    day = f.date_from_unix_date(((f.col("at_ms") - f.col("at_ms") % DAY_MS) / DAY_MS).cast("int")).cast("string")
    shape = {
        "duration_ms": duration_ms,
        "was_sent": f.col("status_code").isNotNull() | (duration_ms > 0),
        "reason": f.when(f.col("outcome") != "DELIVERED", _reason()),
        "waited_ms": f.when(f.col("number") == 1, _waited_ms()),
        "endpoint": endpoint(f.col("target")),
        "repaired": ~f.col("duration_ms").eqNullSafe(duration_ms),
        # A flawed one may lie on no day that a calendar has.
        DAY: f.when(f.col(FLAW).isNull(), day),
    }
    return attempts.select(*(shape.get(name, f.col(name)).alias(name) for name in FACTS.names), FLAW)


def endpoint(target: Column) -> Column:
    """Where a target is: without user name, query and fragment."""
    parts = f.concat(f.regexp_extract(target, ENDPOINT, 1), f.regexp_extract(target, ENDPOINT, 2))
    return named(f.when(target.rlike(ENDPOINT), parts).otherwise(f.regexp_extract(target, "^([^?#]*)", 1)))


def named(text: Column) -> Column:
    """A text as a name in statistics."""
    return f.replace(f.substring(text, 1, NAME_CHARACTERS), f.lit("\0"), f.lit("\N{REPLACEMENT CHARACTER}"))


def _any_missing() -> Column:
    return f.greatest(*(f.col(name).isNull() for name in ("job_id", "number", "outcome", "at_ms")))


def _reason() -> Column:
    answered = f.concat(f.lit("answered "), f.col("status_code").cast("string"))
    return f.substring(f.coalesce(f.col("error"), answered, f.lit("no reason was kept")), 1, REASON_CHARACTERS)


def _waited_ms() -> Column:
    # A damaged time may lie so far back that the difference is no number of 64 bits.
    waited_ms = f.try_subtract(f.col("at_ms"), f.coalesce("scheduled_for_ms", "created_at_ms"))
    bounded = f.least(f.greatest(f.coalesce(waited_ms, f.lit(LONGEST_WAIT_MS)), f.lit(0)), f.lit(LONGEST_WAIT_MS))
    return f.when(f.col("created_at_ms").isNotNull(), bounded)

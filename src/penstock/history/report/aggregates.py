"""The aggregates of delivery facts that a report shows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.outcome import AttemptOutcome
from penstock.events.dispatch.spark.plan import group_hash
from penstock.events.statistics import COARSE_BOUNDS_MS

_FAILURES = (AttemptOutcome.FAILED.value, AttemptOutcome.REFUSED.value)
_PERCENTILES = (0.5, 0.95, 0.99)
_ACCURACY = 10_000


def totals(facts: DataFrame) -> DataFrame:
    """Return one row: attempts by outcome, and how long jobs waited for their first."""
    return facts.agg(
        f.count("*").alias("attempts"),
        *(f.count_if(f.col("outcome") == outcome.value).alias(outcome.value.lower()) for outcome in AttemptOutcome),
        f.count_if("repaired").alias("repaired"),
        f.avg("waited_ms").alias("wait_mean_ms"),
        f.max("waited_ms").alias("wait_longest_ms"),
        *(
            f.percentile_approx(f.when(f.col("was_sent"), f.col("duration_ms")), share, _ACCURACY).alias(name)
            for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99))
        ),
        *(
            f.percentile_approx("waited_ms", share, _ACCURACY).alias(name)
            for name, share in (("wait_p50_ms", 0.5), ("wait_p99_ms", 0.99))
        ),
    )


def jobs(facts: DataFrame) -> DataFrame:
    """Return one row: the number of jobs. It is separate, because Spark would keep all other sums by job."""
    return facts.agg(f.count_distinct("job_id").alias("jobs"))


def groups_by_volume(facts: DataFrame, most: int) -> DataFrame:
    """Return the groups with the most attempts."""
    return (
        facts.where(f.col("group_key").isNotNull())
        .groupBy("group_key")
        .agg(
            f.count("*").alias("attempts"), f.count_if(_failed()).alias("failed"), f.sum("duration_ms").alias("busy_ms")
        )
        .orderBy(f.desc("attempts"), "group_key")
        .limit(most)
    )


def subscriptions_by_volume(facts: DataFrame, most: int) -> DataFrame:
    """Return subscriptions by event type, those with the most attempts first."""
    return (
        facts.groupBy("subscription_id", f.col("type").alias("event_type"))
        .agg(
            f.count("*").alias("attempts"),
            f.count_if(_failed()).alias("failed"),
            f.percentile_approx("waited_ms", 0.5, _ACCURACY).alias("wait_p50_ms"),
            f.percentile_approx("waited_ms", 0.99, _ACCURACY).alias("wait_p99_ms"),
            f.percentile_approx(f.when(f.col("was_sent"), f.col("duration_ms")), 0.99, _ACCURACY).alias("p99_ms"),
        )
        .orderBy(f.desc("attempts"), f.asc_nulls_first("subscription_id"), f.asc_nulls_first("event_type"))
        .limit(most)
    )


def backlog_changes(facts: DataFrame, since_ms: int, step_ms: int) -> DataFrame:
    """Return for each time step how many jobs became due in it, less those whose first attempt began in it.

    Jobs that were due before `since_ms` count in its step.
    """
    first = facts.where((f.col("number") == 1) & f.col("waited_ms").isNotNull())
    due_ms = f.greatest(f.col("at_ms") - f.col("waited_ms"), f.lit(since_ms))
    moves = f.explode(
        f.array(f.struct(due_ms.alias("at_ms"), f.lit(1).alias("by")), f.struct("at_ms", f.lit(-1).alias("by")))
    )
    return (
        first.select(moves.alias("move"))
        .select("move.*")
        .groupBy(_step_ms(step_ms).alias("step_ms"))
        .agg(f.sum("by").alias("change"))
    )


def partition_load(facts: DataFrame, partitions: int) -> DataFrame:
    """Return groups and attempts of each partition of a queue with this number, a power of two."""
    groups = facts.where(f.col("group_key").isNotNull()).groupBy("group_key").agg(f.count("*").alias("attempts"))
    # Each group is hashed once, not each of its attempts.
    return (
        groups.groupBy(group_hash(f.col("group_key")).bitwiseAND(partitions - 1).alias("partition"))
        .agg(f.count("*").alias("groups"), f.sum("attempts").alias("attempts"))
        .orderBy("partition")
    )


def latency_over_time(facts: DataFrame, step_ms: int) -> DataFrame:
    """Return how many attempts of each time step fell into each latency bucket."""
    sent = facts.where("was_sent")
    return sent.groupBy(_step_ms(step_ms).alias("step_ms"), _bucket().alias("bucket")).agg(
        f.count("*").alias("attempts")
    )


def failure_reasons(facts: DataFrame, most: int) -> DataFrame:
    """Return why attempts did not deliver, the most frequent reason first."""
    return (
        facts.where(f.col("reason").isNotNull())
        .groupBy("reason", "outcome")
        .agg(f.count("*").alias("attempts"), f.approx_count_distinct("endpoint").alias("endpoints"))
        .orderBy(f.desc("attempts"), "reason", "outcome")
        .limit(most)
    )


def slowest_endpoints(facts: DataFrame, most: int) -> DataFrame:
    """Return the endpoints with the slowest 99th percentile."""
    return (
        facts.where(f.col("was_sent") & f.col("endpoint").isNotNull())
        .groupBy("endpoint")
        .agg(
            f.count("*").alias("attempts"),
            f.count_if(_failed()).alias("failed"),
            f.percentile_approx("duration_ms", list(_PERCENTILES), _ACCURACY).alias("percentiles"),
        )
        .select("endpoint", "attempts", "failed", *(_percentile(place) for place in range(len(_PERCENTILES))))
        .orderBy(f.desc("p99_ms"), f.desc("p95_ms"), "endpoint")
        .limit(most)
    )


def attempts_over_time(facts: DataFrame, step_ms: int) -> DataFrame:
    """Return first attempts, retries and failures of each time step."""
    return facts.groupBy(_step_ms(step_ms).alias("step_ms")).agg(
        f.count_if(f.col("number") == 1).alias("first"),
        f.count_if(f.col("number") > 1).alias("retries"),
        f.count_if(_failed()).alias("failed"),
    )


def _failed() -> Column:
    return f.col("outcome").isin(*_FAILURES)


def _bucket() -> Column:
    # The number of bounds below it; bounds are inclusive.
    return sum((f.when(f.col("duration_ms") > bound, 1).otherwise(0) for bound in COARSE_BOUNDS_MS), start=f.lit(0))


def _step_ms(step_ms: int) -> Column:
    # Steps divide a day, and 1970 began with one.
    return f.col("at_ms") - f.col("at_ms") % step_ms


def _percentile(place: int) -> Column:
    return f.col("percentiles")[place].alias(f"p{_PERCENTILES[place] * 100:g}_ms")

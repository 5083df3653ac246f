"""Fan-out on Spark beside a plain loop: the same events and subscriptions, each event wanted by five of 1,000."""

import statistics
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.event import StoredEvent
from penstock.domain.ids import encode_tsid
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.subscription import Subscription
from penstock.events.fan_out import FanOut
from penstock.events.fan_out.spark_plan import packed, planned_jobs
from penstock.tools.bench.servers import rate_of

KINDS = 200
WANTING = 5
_GROUPS = 50_000
_RECEIVED_MS = 1_600_000_000_000
_ATTRIBUTES = '{"region":"eu"}'
# A loop's pace is the same after so many as after all of them.
_MOST_IN_LOOP = 100_000
_EUROPE_OR_US = EventFilter((Condition("region", values=("eu", "us")),))


class FanOutRates(msgspec.Struct, frozen=True):
    """Jobs a second, and that over the loop's."""

    jobs_per_s: float
    vs_python: float


def fan_out_rates(spark: SparkSession, directory: Path, count: int, rounds: int) -> FanOutRates:
    """Plan the jobs of so many events in memory, by Spark and by the loop by turns."""
    wanting = subscriptions()
    events_frame(spark, count).write.parquet(f"{directory}/events")
    jobs = planned_jobs(spark.read.parquet(f"{directory}/events"), packed(wanting))
    if (planned := jobs.count()) != count * WANTING:
        raise RuntimeError(f"{count:,} events made {planned:,} jobs instead of {count * WANTING:,}")
    fan_out = FanOut(wanting)
    events = [event_of(number) for number in range(min(count, _MOST_IN_LOOP))]

    def by_spark() -> int:
        jobs.write.format("noop").mode("overwrite").save()
        return planned

    def by_loop() -> int:
        return sum(len(fan_out.jobs(event)) for event in events)

    rates = [(rate_of(by_spark), rate_of(by_loop)) for _ in range(rounds)]
    return FanOutRates(
        statistics.median(spark_rate for spark_rate, _ in rates),
        statistics.median(spark_rate / loop_rate for spark_rate, loop_rate in rates),
    )


def subscriptions() -> list[Subscription]:
    """Five for each kind of event, of different patterns; one in ten asks for an attribute, too."""
    made = []
    for kind in range(KINDS):
        exact = f"orders:kind-{kind}:created"
        patterns = (exact, exact, f"orders:kind-{kind}:*", f"orders:kind-{kind}:**", f"*:kind-{kind}:created")
        for place, pattern in enumerate(patterns):
            number = kind * WANTING + place
            made.append(
                Subscription(
                    id=encode_tsid(number),
                    name=f"subscriber-{number}",
                    pattern=pattern,
                    target=f"https://subscriber-{number}.example/hook",
                    filter=EventFilter() if number % 10 else _EUROPE_OR_US,
                )
            )
    return made


def events_frame(spark: SparkSession, count: int) -> DataFrame:
    """Events as rows of `schemas.EVENTS`, as far as fan-out reads them."""
    number = f.col("id")
    return spark.range(count, numPartitions=2 * spark.sparkContext.defaultParallelism).select(
        f.lpad(number.cast("string"), 13, "0").alias("id"),
        f.lit("").alias("tenant"),
        f.lit("/shop").alias("source"),
        number.cast("string").alias("external_id"),
        f.format_string("orders:kind-%d:created", number % KINDS).alias("type"),
        f.lit(None).cast("string").alias("subject"),
        f.lit("application/json").alias("content_type"),
        f.format_string("order-%d", number % _GROUPS).alias("group_name"),
        f.lit(_ATTRIBUTES).alias("attributes"),
        (number + _RECEIVED_MS).alias("received_ms"),
    )


def event_of(number: int) -> StoredEvent:
    """The event of a row of `events_frame`."""
    return StoredEvent(
        id=f"{number:013}",
        source="/shop",
        type=f"orders:kind-{number % KINDS}:created",
        received_ms=_RECEIVED_MS + number,
        external_id=str(number),
        group=f"order-{number % _GROUPS}",
        attributes=msgspec.json.decode(_ATTRIBUTES, type=dict[str, str]),
    )

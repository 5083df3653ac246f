"""The lake: attempts of PostgreSQL written to Delta tables by the facts job, and a question in SQL to many of them."""

import statistics
import time
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.ids import encode_tsid
from penstock.domain.subscription import Subscription
from penstock.history.lake.delta import TableState
from penstock.history.lake.facts_job import FactsJob, FactsSettings
from penstock.history.lake.lake import Lake
from penstock.history.lake.schema import DATE, DELIVERIES, POSITION
from penstock.history.lake.views import query, rows
from penstock.history.lake.writer import write_rows
from penstock.spark.database import SparkDatabase
from penstock.tools.bench.pipeline.dispatch import groups_of
from penstock.tools.bench.pipeline.schema import connected, fill_completed, jobs_schema
from penstock.tools.bench.servers import rate_of

_SUBSCRIBER = Subscription(id=encode_tsid(1), name="subscriber", pattern="orders:**", target="https://a.example/hook")
_ATTEMPTS = """
INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms, status_code)
SELECT id, 1, 'DELIVERED', created_at_ms + 5, 12, 200 FROM jobs
"""
_QUESTION = (
    "SELECT subscription, count(*) AS attempts, count(*) FILTER (WHERE outcome <> 'DELIVERED') AS others "
    "FROM deliveries GROUP BY subscription"
)
_SUBSCRIBERS = 20
_FROM_S = 1_900_000_000
_DAYS = 10


def facts_per_s(spark: SparkSession, url: str, directory: Path, attempts: int, rounds: int) -> float:
    """Attempts a second, with their jobs, events and names, into an empty lake; counted for the statistics, too."""
    with jobs_schema(url, "penstock_bench_facts") as database:
        filled = fill_completed(database, _SUBSCRIBER, groups_of(attempts))
        with connected(database) as connection:
            connection.execute(_ATTEMPTS)
            connection.execute("VACUUM ANALYZE attempts")
        places = [directory / f"facts-{number}" for number in range(rounds + 1)]
        rates = [rate_of(partial(_write, spark, database, place)) for place in places]
        written = Lake(spark, f"{directory}/facts-0/lake").frame(DELIVERIES.name).count()
        if written != filled:
            raise RuntimeError(f"of {filled:,} attempts the lake has {written:,}")
    # The first round warms up.
    return statistics.median(rates[1:])


def _write(spark: SparkSession, database: SparkDatabase, directory: Path) -> int:
    lake = f"{directory}/lake"
    FactsJob(database, FactsSettings(lake=lake, once=True)).start(spark, f"{directory}/checkpoint").awaitTermination()
    return sum(file.rows for file in Lake(spark, lake).tables[DELIVERIES.name].files())


def sql_count_s(spark: SparkSession, directory: Path, deliveries: int, rounds: int) -> float:
    """Seconds of `penstock pipeline sql` for counts by subscription and outcome, without the start of Spark."""
    lake = Lake(spark, str(directory / "lake"))
    files = lake.tables[DELIVERIES.name]
    files.commit(write_rows(_deliveries(spark, deliveries), files), deliveries, TableState())
    took = [_ask(lake, deliveries) for _ in range(rounds + 1)]
    return statistics.median(took[1:])


def _ask(lake: Lake, deliveries: int) -> float:
    started_s = time.perf_counter()
    found = list(rows(query(lake, _QUESTION), None))
    took_s = time.perf_counter() - started_s
    counted = sum(int(row[1] or 0) for row in found)
    if counted != deliveries:
        raise RuntimeError(f"of {deliveries:,} deliveries the query counted {counted:,}")
    return took_s


def _deliveries(spark: SparkSession, count: int) -> DataFrame:
    """Return deliveries of ten days and 20 subscriptions; one in fifty fails."""
    number = f.col("id")
    at_s = f.lit(_FROM_S) + f.floor(number * _DAYS * 86_400 / count)
    name = f.concat(f.lit("subscriber-"), number % _SUBSCRIBERS)
    at = f.timestamp_seconds(at_s)
    shape = {
        "attempted_at": at,
        "job_id": f.concat(f.lpad(number.cast("string"), 13, "0"), f.lit("-0000000000001")),
        "attempt": f.lit(1),
        "outcome": f.when(number % 50 == 0, "FAILED").otherwise("DELIVERED"),
        "status": f.when(number % 50 == 0, 503).otherwise(200),
        "response_ms": number % 250,
        "was_sent": f.lit(True),
        "waited_ms": number % 1000,
        "tenant": f.lit(""),
        "subscription_id": name,
        "subscription": name,
        "event_type": f.lit("orders:created"),
        "key": f.concat(f.lit("order-"), number % 10_000),
        "created_at": at,
        POSITION: number,
        DATE: at.cast("date"),
    }
    columns = [shape.get(each.name, f.lit(None)).cast(each.dataType).alias(each.name) for each in DELIVERIES.spark]
    return spark.range(count, numPartitions=max(2, _DAYS)).select(*columns)

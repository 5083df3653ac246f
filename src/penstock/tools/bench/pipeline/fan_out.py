"""Fan-out on Spark as the product runs it: events in PostgreSQL become jobs in PostgreSQL."""

import statistics
import time
from pathlib import Path

import msgspec
import uvloop
from pyspark.sql import SparkSession

from penstock.domain.ids import encode_tsid
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.spark import FanOutJob, FanOutSettings
from penstock.spark.database import SparkDatabase
from penstock.tools.bench.pipeline.schema import PER_GROUP, connected, fill_events, insert_pending, jobs_schema
from penstock.tools.bench.scheduler_backlog import opened
from penstock.tools.bench.servers import rate_of

KINDS = 200
MATCHES = 5
_EUROPE_OR_US = EventFilter((Condition("region", values=("eu", "us")),))


class FanOutRates(msgspec.Struct, frozen=True):
    """Jobs per second, and the share of PostgreSQL's own rate."""

    jobs_per_s: float
    vs_inserts: float


def fan_out_rates(spark: SparkSession, url: str, directory: Path, events: int, rounds: int) -> FanOutRates:
    """Measure fan-out and plain inserts in turns, each in an empty schema."""
    rates = [_rates(spark, url, directory / f"checkpoint-{number}", events) for number in range(rounds + 1)]
    measured = rates[1:]  # the first round warms up
    return FanOutRates(
        statistics.median(each.jobs_per_s for each in measured),
        statistics.median(each.vs_inserts for each in measured),
    )


def _rates(spark: SparkSession, url: str, checkpoint: Path, events: int) -> FanOutRates:
    with jobs_schema(url, "penstock_bench_fan_out") as database:
        prepare(database, events)
        started_s = time.perf_counter()
        fan_out(spark, database, checkpoint)
        took_s = time.perf_counter() - started_s
        jobs = count_jobs(database)
    if jobs != events * MATCHES:
        raise RuntimeError(f"{events:,} events got {jobs:,} jobs instead of {events * MATCHES:,}")
    with jobs_schema(url, "penstock_bench_inserts") as database:
        inserts_per_s = rate_of(lambda: insert_pending(database, jobs // PER_GROUP))
    return FanOutRates(jobs / took_s, jobs / took_s / inserts_per_s)


def prepare(database: SparkDatabase, events: int) -> None:
    """Store 1,000 subscriptions and events that wait for their jobs; five subscriptions match each event."""

    async def subscribe() -> None:
        async with opened(database.repository()) as jobs:
            for subscription in subscriptions():
                await jobs.add_subscription(subscription)

    uvloop.run(subscribe())
    fill_events(database, events, max(1, events // PER_GROUP), KINDS)


def fan_out(spark: SparkSession, database: SparkDatabase, checkpoint: Path) -> None:
    """Run the streaming job until no event waits for its jobs."""
    job = FanOutJob(database, FanOutSettings(once=True))
    try:
        job.start(spark, str(checkpoint)).awaitTermination()
    finally:
        job.close()


def count_jobs(database: SparkDatabase) -> int:
    """Return the number of jobs in the database."""
    with connected(database) as connection:
        row = connection.execute("SELECT count(*) FROM jobs").fetchone()
    return 0 if row is None else int(row[0])


def subscriptions() -> list[Subscription]:
    """Return five for each kind of event, with different patterns; one in ten has a filter too."""
    created = []
    for kind in range(KINDS):
        exact = f"orders:kind-{kind}:created"
        patterns = (exact, exact, f"orders:kind-{kind}:*", f"orders:kind-{kind}:**", f"*:kind-{kind}:created")
        for place, pattern in enumerate(patterns):
            number = kind * MATCHES + place
            created.append(
                Subscription(
                    id=encode_tsid(number),
                    name=f"subscriber-{number}",
                    pattern=pattern,
                    target=f"https://subscriber-{number}.example/hook",
                    filter=EventFilter() if number % 10 else _EUROPE_OR_US,
                )
            )
    return created

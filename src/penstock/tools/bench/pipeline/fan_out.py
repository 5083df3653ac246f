"""Fan-out on Spark as the product runs it: events in a database become jobs there; beside it, a loop in Python."""

import sqlite3
import statistics
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from pyspark.sql import SparkSession

from penstock.domain.event import StoredEvent
from penstock.domain.ids import encode_tsid
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.subscription import Subscription
from penstock.edge.clock import SystemClock
from penstock.events.fan_out import FanOut
from penstock.events.fan_out.spark import FanOutJob, FanOutSettings
from penstock.spark.database import SparkDatabase
from penstock.tools.bench.pipeline.schema import PER_GROUP, connected, fill_events, insert_pending, jobs_schema
from penstock.tools.bench.scheduler_backlog import opened
from penstock.tools.bench.servers import rate_of

KINDS = 200
MATCHES = 5
_AT_ONCE = 4_000
_COLUMNS = (
    "id", "tenant", "source", "external_id", "type", "subject", "data", "content_type", "group_name", "attributes",
    "received_ms",
)  # fmt: skip
_WAITING = f"SELECT {', '.join(_COLUMNS)} FROM events WHERE fanned_out = 0 ORDER BY position, id LIMIT {_AT_ONCE}"
_EUROPE_OR_US = EventFilter((Condition("region", values=("eu", "us")),))


class FanOutRates(msgspec.Struct, frozen=True):
    """Jobs per second, and the share of PostgreSQL's own rate."""

    jobs_per_s: float
    vs_inserts: float
    loop_jobs_per_s: float


def fan_out_rates(spark: SparkSession, url: str, directory: Path, events: int, rounds: int) -> FanOutRates:
    """Measure fan-out and plain inserts in turns, each in an empty schema."""
    rates = [_rates(spark, url, directory / f"checkpoint-{number}", events) for number in range(rounds + 1)]
    measured = rates[1:]  # the first round warms up
    return FanOutRates(
        statistics.median(each.jobs_per_s for each in measured),
        statistics.median(each.vs_inserts for each in measured),
        statistics.median(each.loop_jobs_per_s for each in measured),
    )


def sqlite_fan_out_per_s(spark: SparkSession, directory: Path, events: int, rounds: int) -> float:
    """Measure the same on SQLite, each time in an empty file."""
    return statistics.median([_sqlite_per_s(spark, directory / f"sqlite-{number}", events) for number in range(rounds)])


def _sqlite_per_s(spark: SparkSession, directory: Path, events: int) -> float:
    database = SparkDatabase(f"sqlite://{directory}/jobs.db")
    directory.mkdir()
    groups = max(1, events // PER_GROUP)

    async def fill() -> None:
        async with opened(database.repository()) as jobs:
            for subscription in subscriptions():
                await jobs.add_subscription(subscription)
            for start in range(0, events, _AT_ONCE):
                await jobs.add_events(
                    [_event(number, groups) for number in range(start, min(start + _AT_ONCE, events))]
                )

    uvloop.run(fill())
    started_s = time.perf_counter()
    fan_out(spark, database, directory / "checkpoint")
    took_s = time.perf_counter() - started_s
    with closing(sqlite3.connect(database.path)) as connection:
        ((stored,),) = connection.execute("SELECT count(*) FROM jobs").fetchall()
    _check(events, stored)
    return float(stored / took_s)


def _event(number: int, groups: int) -> StoredEvent:
    return StoredEvent(
        id=f"{number:013}",
        source="/shop",
        external_id=str(number),
        type=f"orders:kind-{number % KINDS}:created",
        data=b'{"order":"0HZXEQ5Y8JY5Z","amount":1999,"currency":"EUR"}',
        group=f"order-{number % groups}",
        attributes={"region": "eu"},
        received_ms=1_600_000_000_000 + number,
    )


def _check(events: int, jobs: int) -> None:
    if jobs != events * MATCHES:
        raise RuntimeError(f"{events:,} events got {jobs:,} jobs instead of {events * MATCHES:,}")


def python_loop(database: SparkDatabase) -> None:
    """Fan out as a program without Spark would: read some events, match each by the rule, store their jobs."""

    async def run() -> None:
        async with opened(database.repository()) as jobs:
            rule = FanOut(await jobs.list_subscriptions())
            with connected(database) as connection:
                while rows := connection.execute(_WAITING).fetchall():
                    waiting = [_stored(row) for row in rows]
                    created = [job for event in waiting for job in rule.jobs(event)]
                    await jobs.fan_out([event.id for event in waiting], created, SystemClock().now_ms())

    uvloop.run(run())


def _stored(row: tuple[Any, ...]) -> StoredEvent:
    values = dict(zip(_COLUMNS, row, strict=True))
    attributes = msgspec.json.decode(values.pop("attributes"))
    return StoredEvent(group=values.pop("group_name"), attributes=attributes, **values)


def _rates(spark: SparkSession, url: str, checkpoint: Path, events: int) -> FanOutRates:
    with jobs_schema(url, "penstock_bench_fan_out") as database:
        prepare(database, events)
        started_s = time.perf_counter()
        fan_out(spark, database, checkpoint)
        took_s = time.perf_counter() - started_s
        jobs = count_jobs(database)
    _check(events, jobs)
    with jobs_schema(url, "penstock_bench_inserts") as database:
        inserts_per_s = rate_of(lambda: insert_pending(database, jobs // PER_GROUP))
    with jobs_schema(url, "penstock_bench_loop") as database:
        prepare(database, events)
        started_s = time.perf_counter()
        python_loop(database)
        loop_s = time.perf_counter() - started_s
        _check(events, count_jobs(database))
    return FanOutRates(jobs / took_s, jobs / took_s / inserts_per_s, jobs / loop_s)


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

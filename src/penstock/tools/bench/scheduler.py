"""Measures the scheduler: a backlog of PENDING jobs, the latency of one job, and the cost of finished jobs."""

import gc
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg
import uvloop

from penstock.domain.pace.credit import CreditBook, CreditLimits
from penstock.edge.clock import Clock, SystemClock
from penstock.events.dispatch import LaneClaims, SchedulerSettings
from penstock.events.store import JobRepository, LaneOwner, LaneRun
from penstock.events.store.postgres import postgres_repository
from penstock.events.store.sqlite import sqlite_repository
from penstock.tools.bench.scheduler_backlog import drained_per_s, fill, opened
from penstock.tools.bench.scheduler_latency import Latencies, latencies
from penstock.tools.bench.servers import postgres_server, sqs_queue

_JOBS = 100_000
_GROUPS = 5_000
_POLLS = 150
_BATCH = 20
_UNLIMITED = CreditLimits(1_000_000, None, False)
_FINISHED_PER_STATEMENT = 250_000
_INSERT = """
INSERT INTO {table} (
    id, tenant, type, group_name, group_key, sequence, mode, state, target, pool, content_type, headers, due_at_ms,
    attempt_count, delivery_count, publish_round, created_at_ms, updated_at_ms, finished_at_ms
)
SELECT {id}, '', 'DISPATCH_JOB', 'order', 'DISPATCH_JOB:order-' || (n % 5000), 99, 2, 5, 'https://orders.example/hook',
    'DISPATCH-POOL', 'application/json', '{{}}', 1600000000000 + n, 1, 1, 0, 1600000000000 + n, 1600000000000 + n,
    1600000000000 + n
FROM {series}
"""


class SchedulerFigures(msgspec.Struct, kw_only=True):
    """The figures of `penstock bench scheduler`."""

    postgres_jobs_per_s: float
    """100,000 PENDING jobs in 5,000 groups, all BLOCK_ON_ERROR, in PostgreSQL: claimed, published to Penstock's SQS
    server (FIFO, durable on SQLite, in its own process), and marked QUEUED; with the default settings."""
    sqlite_jobs_per_s: float
    """The same from SQLite to the embedded queue, both with fsync."""
    latency_p50_ms: float
    """From before a job is created to its POST at the subscriber, one job at a time, on PostgreSQL, through the
    scheduler, the SQS server, the router and the process endpoint, each a process."""
    latency_p99_ms: float
    """The 99th percentile of the same latency."""
    flat_ratio: float
    """Time of a poll with many finished jobs over that with none; the worse of the two databases."""


def bench_scheduler(
    rounds: int, finished: int, database_url: str | None, report: Callable[[str], None]
) -> SchedulerFigures:
    """Measure everything; `report` is called with each step."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # as `penstock serve` sets it
    sys.setswitchinterval(0.0005)
    with _directory() as root, postgres_server(database_url, str(root / "postgres")) as url:
        drained = []
        for number in range(rounds):
            report(f"{_JOBS:,} jobs in {_GROUPS:,} groups to the queue (round {number + 1} of {rounds})")
            drained.append((_from_postgres(url, number), _from_sqlite()))
        report("the latency of one job through all processes")
        latency = _latency(url)
        report(f"a poll with {finished:,} finished jobs")
        ratio = max(_flat_postgres(url, finished), _flat_sqlite(finished))
    return SchedulerFigures(
        postgres_jobs_per_s=statistics.median(postgres for postgres, _ in drained),
        sqlite_jobs_per_s=statistics.median(sqlite for _, sqlite in drained),
        latency_p50_ms=latency.p50_ms,
        latency_p99_ms=latency.p99_ms,
        flat_ratio=ratio,
    )


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        yield Path(directory)


def _from_postgres(url: str, number: int) -> float:
    async def measure(queue_url: str) -> float:
        async with opened(postgres_repository(url, schema=f"bench_backlog_{number}", listen=True)) as jobs:
            await fill(jobs, _JOBS, _GROUPS)
            return await drained_per_s(jobs, queue_url, _JOBS)

    with _directory() as directory, sqs_queue(str(directory), "backlog.fifo") as queue_url:
        return uvloop.run(measure(queue_url))


def _from_sqlite() -> float:
    async def measure(directory: Path) -> float:
        async with opened(sqlite_repository(directory / "jobs.db")) as jobs:
            await fill(jobs, _JOBS, _GROUPS)
            return await drained_per_s(jobs, f"sqlite://{directory}/queue.db?queue=backlog", _JOBS)

    with _directory() as directory:
        return uvloop.run(measure(directory))


def _latency(url: str) -> Latencies:
    with _directory() as directory:
        return uvloop.run(latencies(url, str(directory)))


def _flat_postgres(url: str, finished: int) -> float:
    async def measure() -> float:
        full = postgres_repository(url, schema="bench_full")
        async with opened(full), opened(postgres_repository(url, schema="bench_empty")) as empty:
            finish_in_postgres(url, "bench_full", finished)
            return await flat_ratio(full, empty)

    return uvloop.run(measure())


def _flat_sqlite(finished: int) -> float:
    async def measure(directory: Path) -> float:
        full = sqlite_repository(directory / "full.db")
        async with opened(full), opened(sqlite_repository(directory / "empty.db")) as empty:
            finish_in_sqlite(str(directory / "full.db"), finished)
            return await flat_ratio(full, empty)

    with _directory() as directory:
        return uvloop.run(measure(directory))


def finish_in_postgres(url: str, schema: str, count: int) -> None:
    """Insert completed jobs into an existing schema."""
    with psycopg.connect(url, autocommit=True) as connection:
        for start in range(0, count, _FINISHED_PER_STATEMENT):
            end = min(start + _FINISHED_PER_STATEMENT, count) - 1
            series = f"generate_series({start}, {end}) AS made (n)"
            text = _INSERT.format(table=f"{schema}.jobs", id="lpad(n::text, 13, '0')", series=series)
            connection.execute(text.encode())
        connection.execute(f"VACUUM ANALYZE {schema}.jobs".encode())


def finish_in_sqlite(path: str, count: int) -> None:
    """Insert completed jobs into an existing file."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    for start in range(0, count, _FINISHED_PER_STATEMENT):
        end = min(start + _FINISHED_PER_STATEMENT, count)
        text = _INSERT.format(table="jobs", id="printf('%013d', n)", series="made")
        counted = f"WITH RECURSIVE made (n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM made WHERE n + 1 < {end})"
        connection.execute(f"{counted} {text}")
    connection.close()


async def flat_ratio(full: JobRepository, empty: JobRepository, polls: int = _POLLS) -> float:
    """Return the ratio of the median poll times, measured alternately, as the machine's speed changes."""
    for number in range(10):
        for jobs in (full, empty):
            await _poll(jobs, f"warm-{number}")
    full_s, empty_s = [], []
    for number in range(polls):
        full_s.append(await _poll(full, str(number)))
        empty_s.append(await _poll(empty, str(number)))
    return statistics.median(full_s) / statistics.median(empty_s)


async def _poll(jobs: JobRepository, named: str) -> float:
    """Return the seconds of a poll that finds a batch: read, claim, mark, read again, next due time.

    The batch has groups of its own: nothing is delivered here, and a group has a few jobs in the queue at once.
    """
    await fill(jobs, _BATCH, _BATCH, named)
    clock = SystemClock()
    claims = LaneClaims(jobs.lanes, LaneOwner("bench"), SchedulerSettings(), clock)
    started_s = time.perf_counter()
    runs = await claims.take(await _read(jobs, clock))
    claimed = [job for run in runs for job in run.jobs]
    await claims.published(claimed, [run.lane for run in runs])
    await _read(jobs, clock)
    await jobs.next_due_ms()
    took_s = time.perf_counter() - started_s
    if len(claimed) != _BATCH:
        raise RuntimeError(f"a poll claimed {len(claimed)} jobs of {_BATCH}")
    return took_s


async def _read(jobs: JobRepository, clock: Clock) -> list[LaneRun]:
    """Read the due lanes, as a poll does."""
    await jobs.do_chores(clock.now_ms())
    return await jobs.lanes.read(clock.now_ms(), _BATCH, CreditBook(fixed=_UNLIMITED))

"""What a poll costs beside many finished jobs, over the same beside none."""

import sqlite3
import statistics
import time

import psycopg

from penstock.bench.scheduler_backlog import fill
from penstock.edge.clock import SystemClock
from penstock.events.store.repository import JobRepository

_POLLS = 150
_BATCH = 20
_FINISHED_AT_ONCE = 250_000
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


def finish_in_postgres(url: str, schema: str, count: int) -> None:
    """Put completed jobs into a schema that a repository has made."""
    with psycopg.connect(url, autocommit=True) as connection:
        for start in range(0, count, _FINISHED_AT_ONCE):
            end = min(start + _FINISHED_AT_ONCE, count) - 1
            series = f"generate_series({start}, {end}) AS made (n)"
            text = _INSERT.format(table=f"{schema}.jobs", id="lpad(n::text, 13, '0')", series=series)
            connection.execute(text.encode())
        connection.execute(f"VACUUM ANALYZE {schema}.jobs".encode())


def finish_in_sqlite(path: str, count: int) -> None:
    """Put completed jobs into a file that a repository has made."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    for start in range(0, count, _FINISHED_AT_ONCE):
        end = min(start + _FINISHED_AT_ONCE, count)
        text = _INSERT.format(table="jobs", id="printf('%013d', n)", series="made")
        counted = f"WITH RECURSIVE made (n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM made WHERE n + 1 < {end})"
        connection.execute(f"{counted} {text}")
    connection.close()


async def flat_ratio(full: JobRepository, empty: JobRepository) -> float:
    """The median time of a poll on one over that on the other; the two by turns, as a machine's pace changes."""
    for jobs in (full, empty) * 10:
        await _poll(jobs)
    full_s, empty_s = [], []
    for _ in range(_POLLS):
        full_s.append(await _poll(full))
        empty_s.append(await _poll(empty))
    return statistics.median(full_s) / statistics.median(empty_s)


async def _poll(jobs: JobRepository) -> float:
    """Seconds for a poll that finds a batch: claim, mark, ask again, and when to come back."""
    await fill(jobs, _BATCH, _BATCH)
    now_ms = SystemClock().now_ms
    started_s = time.perf_counter()
    claimed = await jobs.claim_pending(now_ms(), "bench", 30_000, _BATCH, 100)
    await jobs.mark_queued(claimed, "bench", now_ms(), now_ms() + 900_000)
    await jobs.claim_pending(now_ms(), "bench", 30_000, _BATCH, 100)
    await jobs.next_due_ms()
    took_s = time.perf_counter() - started_s
    if len(claimed) != _BATCH:
        raise RuntimeError(f"a poll claimed {len(claimed)} jobs of {_BATCH}")
    return took_s

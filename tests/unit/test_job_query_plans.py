"""What the scheduler asks again and again is answered from small indexes, whatever the statistics say."""

import re
import sqlite3
from pathlib import Path

import psycopg
import pytest

from penstock.jobs.postgres import postgres_repository
from penstock.jobs.queries import Dialect, queries
from penstock.jobs.sqlite import sqlite_repository

NOW_MS = 1_700_000_000_000
# Per statement: what it is asked with, and the only indexes of jobs it may use.
ASKED: dict[str, tuple[dict[str, object], set[str]]] = {
    "chores": ({"now_ms": NOW_MS}, {"jobs_waiting", "jobs_claimed", "jobs_expiring"}),
    "next_due": ({}, {"jobs_waiting", "jobs_claimed", "jobs_expiring"}),
    "stale_jobs": ({"now_ms": NOW_MS, "most": 100}, {"jobs_on_their_way"}),
    "lapsed_claims": ({"now_ms": NOW_MS, "most": 100}, {"jobs_claimed"}),
    "due_jobs": ({"now_ms": NOW_MS, "most": 100}, {"jobs_waiting"}),
    "begin_job": (
        {"id": "x", "owner": "a", "now_ms": NOW_MS, "lease_until_ms": NOW_MS},
        {"jobs_pkey", "sqlite_autoindex_jobs_1", "jobs_processing", "jobs_blocking", "jobs_in_line"},
    ),
    "claim_jobs": (
        {"ids": ["x"], "owner": "a", "now_ms": NOW_MS, "lease_until_ms": NOW_MS},
        {"jobs_pkey", "sqlite_autoindex_jobs_1"},
    ),
    "oldest_waiting": ({"now_ms": NOW_MS, "most": 100}, {"jobs_waiting", "jobs_by_state", "jobs_ready"}),
    "archivable_jobs": ({"before_ms": 0, "most": 100}, {"jobs_finished"}),
}
FINISHED = """
INSERT INTO jobs (
    id, tenant, type, group_key, sequence, mode, state, target, pool, content_type, headers, due_at_ms, attempt_count,
    delivery_count, publish_round, created_at_ms, updated_at_ms, finished_at_ms
)
SELECT 'job ' || n, '', 't', 's:' || n % 50, 99, 2, 5, 'u', 'p', 'c', '{}', 1, 1, 1, 0, n, n, n
FROM generate_series(1, 3000) AS n
"""


def indexes_of_jobs(plan: str) -> set[str]:
    # PostgreSQL says "using index on table alias", SQLite "USING [COVERING] INDEX index".
    return set(re.findall(r"(?:using|INDEX) (jobs_\w+|sqlite_autoindex_jobs_\d)", plan))


async def test_sqlite_uses_only_the_indexes_made_for_the_question(tmp_path: Path) -> None:
    repository = sqlite_repository(tmp_path / "jobs.db")
    await repository.open(NOW_MS)
    await repository.close()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    for name, (values, allowed) in ASKED.items():
        texts = {key: "[]" if isinstance(value, list) else value for key, value in values.items()}
        rows = connection.execute("EXPLAIN QUERY PLAN " + queries(Dialect.SQLITE)[name], texts).fetchall()
        used = indexes_of_jobs(" ; ".join(row[3] for row in rows))
        assert used, name
        assert used <= allowed, (name, used)
    connection.close()


@pytest.fixture
async def finished_jobs(postgres_database: str) -> str:
    """A database whose statistics know of finished jobs only."""
    repository = postgres_repository(postgres_database, schema="jobs")
    await repository.open(NOW_MS)
    await repository.close()
    with psycopg.connect(postgres_database, autocommit=True, options="-c search_path=jobs") as connection:
        connection.execute(FINISHED)
        connection.execute("VACUUM ANALYZE jobs")
    return postgres_database


def test_postgres_uses_only_the_indexes_made_for_the_question(finished_jobs: str) -> None:
    lanes: dict[str, object] = {"group_keys": ["s:1", "s:2"], "now_ms": NOW_MS, "most": 5}
    asked = {
        **ASKED,
        "runs_of_ordered_lanes": (lanes, {"jobs_ready", "jobs_blocking"}),
        "runs_of_immediate_lanes": (lanes, {"jobs_ready"}),
    }
    with psycopg.connect(finished_jobs, autocommit=True, options="-c search_path=jobs") as connection:
        for name, (values, allowed) in asked.items():
            rows = connection.execute("EXPLAIN (COSTS OFF) " + queries(Dialect.POSTGRES)[name], values).fetchall()
            plan = " ; ".join(row[0] for row in rows)
            assert "Seq Scan on jobs" not in plan, name
            used = indexes_of_jobs(plan)
            assert used, name
            assert used <= allowed, (name, used)

"""What the scheduler asks again and again is answered from small indexes, whatever the statistics say."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import psycopg
import pytest

from penstock.domain.ids import first_id_of
from penstock.domain.job_state import JobStatus
from penstock.events.store.database import Database, Row, Transaction, Work
from penstock.events.store.postgres import postgres_repository
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.listing import JobFilter, JobListing, JobPage
from penstock.events.store.sqlite import sqlite_repository
from penstock.events.store.statements import Dialect, queries, translated
from tests.rigs.jobs import JobRig

NOW_MS = 1_700_000_000_000
FIRST_ID = first_id_of(NOW_MS)
# Per statement: what it is asked with, and the only indexes of jobs it may use.
ASKED: dict[str, tuple[dict[str, object], set[str]]] = {
    "chores": ({"now_ms": NOW_MS}, {"jobs_waiting", "jobs_expiring"}),
    "next_due": ({}, {"jobs_waiting", "jobs_expiring"}),
    "stale_pools": ({"now_ms": NOW_MS, "after": "", "most": 100}, {"jobs_on_their_way"}),
    "lost_jobs": (
        {"pool": "p", "now_ms": NOW_MS, "settled_before_ms": NOW_MS, "most": 100},
        {"jobs_on_their_way"},
    ),
    "abandoned_jobs": ({"now_ms": NOW_MS, "most": 100}, {"jobs_on_their_way"}),
    "due_jobs": ({"now_ms": NOW_MS, "most": 100}, {"jobs_waiting"}),
    "begin_jobs": (
        {"ids": ["x"], "now_ms": NOW_MS},
        {"jobs_pkey", "sqlite_autoindex_jobs_1", "jobs_processing", "jobs_blocking", "jobs_in_line"},
    ),
    "arrive": (
        {"ids": ["x"], "now_ms": NOW_MS, "lease_until_ms": NOW_MS},
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
SELECT lpad(n::text, 13, '0'), '', 't', 's:' || n % 50, 99, 2, 5, 'u', 'p', 'c', '{}', 1, 1, 1, 0, n, n, n
FROM generate_series(1, 3000) AS n
"""


async def made(repository: JobRepository) -> None:
    """Have the tables made."""
    await repository.open(NOW_MS)
    await repository.close()


def indexes_of_jobs(plan: str) -> set[str]:
    # PostgreSQL says "using index on table alias" or "Index Scan on index", SQLite "USING [COVERING] INDEX index".
    return set(re.findall(r"(?:using|INDEX|Index Scan on) (jobs_\w+|sqlite_autoindex_jobs_\d)", plan))


class Asked:
    """What a search asks a database that has one lane with one job; the database and its transaction."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, dict[str, object]]] = []

    async def read(self, work: Work[JobPage]) -> JobPage:
        return work(cast("Transaction", self))

    def select(self, text: str, values: dict[str, object]) -> list[Row]:
        self.texts.append((text, values))
        return [("x", "s:1")] if len(self.texts) == 1 else []


async def searches_of_a_key() -> list[tuple[str, dict[str, object]]]:
    """Every statement of a search for a key, alone and with all that may narrow it."""
    narrowed = JobFilter(
        key="1", status=JobStatus.COMPLETED, subscription_id="s", tenant="t", type="t", created_from_ms=NOW_MS
    )
    found: list[tuple[str, dict[str, object]]] = []
    for which, cursor in ((JobFilter(key="1"), None), (JobFilter(key="1"), FIRST_ID), (narrowed, FIRST_ID)):
        asked = Asked()
        await JobListing(cast("Database", asked)).list_jobs(which, cursor, 50)
        assert len(asked.texts) == 2
        found += asked.texts
    return found


async def test_sqlite_finds_a_key_by_the_lanes_of_the_subscriptions(tmp_path: Path) -> None:
    await made(sqlite_repository(tmp_path / "jobs.db"))
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        for text, values in await searches_of_a_key():
            asked = "EXPLAIN QUERY PLAN " + translated(text, Dialect.SQLITE)
            plan = " ; ".join(row[3] for row in connection.execute(asked, values))
            assert indexes_of_jobs(plan) == {"jobs_by_group"}, plan
            assert "SCAN jobs" not in plan, plan
            assert "TEMP B-TREE" not in plan, plan


async def test_sqlite_uses_only_the_indexes_made_for_the_question(tmp_path: Path) -> None:
    await made(sqlite_repository(tmp_path / "jobs.db"))
    connection = sqlite3.connect(tmp_path / "jobs.db")
    lane: dict[str, object] = {"group_key": "s:1", "now_ms": NOW_MS, "mode": 2, "share": 5, "pool": "p", "most": 10}
    asked = {
        **ASKED,
        "first_jobs": (lane, {"jobs_ready"}),
        "first_blocker": (lane, {"jobs_blocking"}),
        "lane_on_its_way": (lane, {"jobs_on_their_way"}),
        "jobs_on_their_way": (lane, {"jobs_on_their_way"}),
    }
    for name, (values, allowed) in asked.items():
        texts = {key: "[]" if isinstance(value, list) else value for key, value in values.items()}
        rows = connection.execute("EXPLAIN QUERY PLAN " + queries(Dialect.SQLITE)[name], texts).fetchall()
        used = indexes_of_jobs(" ; ".join(row[3] for row in rows))
        assert used, name
        assert used <= allowed, (name, used)
    connection.close()


@pytest.fixture
async def finished_jobs(postgres_database: str) -> str:
    """A database whose statistics know of finished jobs only."""
    await made(postgres_repository(postgres_database, schema="jobs"))
    with psycopg.connect(postgres_database, autocommit=True, options="-c search_path=jobs") as connection:
        connection.execute(FINISHED)
        connection.execute("VACUUM ANALYZE jobs")
    return postgres_database


def test_postgres_uses_only_the_indexes_made_for_the_question(finished_jobs: str) -> None:
    lanes: dict[str, object] = {
        "group_keys": ["s:1", "s:2"], "ordereds": [True, False], "pools": ["p", "p"], "shares": [5, 5],
        "now_ms": NOW_MS, "lane_credit": 10,
    }  # fmt: skip
    counted: dict[str, object] = {"pools": ["p"], "most": [100]}
    asked = {
        **ASKED,
        "first_jobs": (lanes, {"jobs_ready", "jobs_blocking", "jobs_on_their_way"}),
        "jobs_on_their_way": (counted, {"jobs_on_their_way"}),
    }
    with psycopg.connect(finished_jobs, autocommit=True, options="-c search_path=jobs") as connection:
        for name, (values, allowed) in asked.items():
            rows = connection.execute("EXPLAIN (COSTS OFF) " + queries(Dialect.POSTGRES)[name], values).fetchall()
            plan = " ; ".join(row[0] for row in rows)
            assert "Seq Scan on jobs" not in plan, name
            used = indexes_of_jobs(plan)
            assert used, name
            assert used <= allowed, (name, used)


async def test_postgres_finds_a_key_by_the_lanes_of_the_subscriptions(finished_jobs: str) -> None:
    with psycopg.connect(finished_jobs, autocommit=True, options="-c search_path=jobs") as connection:
        for text, values in await searches_of_a_key():
            rows = connection.execute("EXPLAIN (COSTS OFF) " + translated(text, Dialect.POSTGRES), values).fetchall()
            plan = "\n".join(row[0] for row in rows)
            assert "Seq Scan on jobs" not in plan, plan
            assert indexes_of_jobs(plan) == {"jobs_by_group"}, plan


async def test_postgres_never_reads_all_jobs_to_deliver_some_though_it_planned_for_an_empty_table(
    postgres_database: str,
) -> None:
    def whole_reads() -> int:
        asked = "SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = 'jobs' AND relname = 'jobs'"
        with psycopg.connect(postgres_database) as connection:
            return int(connection.execute(asked).fetchall()[0][0])

    await made(postgres_repository(postgres_database, schema="jobs"))
    before = whole_reads()
    rig = JobRig(postgres_repository(postgres_database, schema="jobs"))
    await rig.repository.open(rig.now_ms)
    # More rounds than it takes until statements are prepared and their plans kept.
    for number in range(20):
        ids = [await rig.make(f"g{number}-{lane}") for lane in range(3)]
        await rig.queue_all()
        for job_id in ids:
            await rig.deliver(job_id)
    # A connection tells what it did at the latest when it ends.
    await rig.repository.close()

    assert whole_reads() == before

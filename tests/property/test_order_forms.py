"""Each SQL form of the rules of order says what `core.order` says, for random groups on both databases."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from penstock.domain.job_state import JobStatus
from penstock.domain.order import LaneKey, blocks
from penstock.engine.store.postgres_address import PostgresAddress
from penstock.events.store.database import LaneQuestion, Row, Transaction
from penstock.events.store.migrations import migrations
from penstock.events.store.postgres import PostgresTransaction
from penstock.events.store.postgres.schema import migrate
from penstock.events.store.sqlite.transaction import SqliteTransaction
from penstock.events.store.statements import CODE_OF_MODE, Dialect, StoredState
from tests.rigs.order_worlds import GROUPS, JOBS, NOW_MS, Job, blocker_of, is_held_back, run_of
from tests.rigs.search import examples

Execute = Callable[[str], object]
LANES = [LaneKey(group, ordered) for group in GROUPS for ordered in (True, False)]
_TRIED = "UPDATE jobs SET delivery_count = 1 WHERE id = :id RETURNING id"
_BLOCKING = "SELECT id FROM jobs AS j WHERE {blocking j}"
_HELD_BACK = "SELECT id FROM jobs AS j WHERE j.state = {QUEUED} AND {held back j}"
_CANDIDATES = "SELECT id FROM jobs AS j WHERE {candidate j}"


class Tables:
    """The tables of one database; what an example puts there is gone after it."""

    def __init__(self, tx: Transaction, execute: Execute) -> None:
        self._tx = tx
        self._execute = execute

    @contextmanager
    def holding(self, jobs: list[Job]) -> Iterator[Transaction]:
        self._execute("BEGIN")
        try:
            self._tx.bulk("insert_jobs", [row_of(job) for job in jobs])
            for job in jobs:
                if job.was_tried:
                    self._tx.select(_TRIED, {"id": job.id})
            yield self._tx
        finally:
            self._execute("ROLLBACK")


def row_of(job: Job) -> Row:
    state = StoredState.WAITING if job.status is JobStatus.PENDING and not job.is_due else None
    if state is None:
        state = StoredState.READY if job.status is JobStatus.PENDING else StoredState[job.status.name]
    return (
        job.id, "", "t", None, None, None, job.group_key, job.sequence, CODE_OF_MODE[job.mode], int(state), "u", "P",
        None, "c", "{}", None, None, 0, job.expires_at_ms, job.created_at_ms, 0, None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def postgres_schema(postgres_url: str) -> Iterator[str]:
    schema = f"order_{uuid4().hex}"
    yield schema
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            for step in migrations(Dialect.SQLITE):
                connection.executescript(step.text)
            yield Tables(SqliteTransaction(connection), connection.execute)
        return
    schema = str(request.getfixturevalue("postgres_schema"))
    session = PostgresAddress(str(request.getfixturevalue("postgres_url"))).connect(schema)
    migrate(session, schema)
    yield Tables(PostgresTransaction(session), lambda text: session.execute(text.encode()))
    session.close()


def ids(tx: Transaction, text: str) -> set[str]:
    values = {"now_ms": NOW_MS} if "candidate" in text else {}
    return {job_id for (job_id,) in tx.select(text, dict(values))}


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=JOBS, share=st.integers(1, 6))
def test_sql_says_what_the_rules_say(tables: Tables, jobs: list[Job], share: int) -> None:
    with tables.holding(jobs) as tx:
        assert ids(tx, _BLOCKING) == {job.id for job in jobs if blocks(job.standing)}
        assert ids(tx, _CANDIDATES) == {job.id for job in jobs if job.is_candidate}
        queued = [job for job in jobs if job.status is JobStatus.QUEUED]
        assert ids(tx, _HELD_BACK) == {job.id for job in queued if is_held_back(jobs, job)}
        for lane, content in zip(
            LANES, tx.first_jobs([LaneQuestion(lane, "P", share) for lane in LANES], NOW_MS, 10), strict=True
        ):
            assert [job.id for job in content.first(share)] == run_of(jobs, lane, share)
            assert content.blocker == (blocker_of(jobs, lane.group_key) if lane.ordered else None)

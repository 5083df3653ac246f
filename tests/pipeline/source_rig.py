"""Empty databases to read from, one of each kind, and direct ways into them."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from penstock.domain.event import StoredEvent
from penstock.events.store.repository import JobRepository
from penstock.events.store.statements import Dialect
from penstock.spark.database import SparkDatabase

NOW_MS = 1_700_000_000_000
Result = TypeVar("Result")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> SparkDatabase:
    """An empty database with the tables of jobs."""
    found: SparkDatabase = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture
def sqlite_place(tmp_path: Path) -> SparkDatabase:
    """An SQLite file with the tables of jobs."""
    return made(SparkDatabase(f"sqlite://{tmp_path}/jobs.db"))


@pytest.fixture
def postgres_place(postgres_url: str) -> Iterator[SparkDatabase]:
    """A schema of PostgreSQL with the tables of jobs."""
    database = made(SparkDatabase(postgres_url, f"jobs_{uuid4().hex}"))
    yield database
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(database.schema)))


def made(database: SparkDatabase) -> SparkDatabase:
    """The same with its tables."""

    async def make() -> None:
        repository = database.repository()
        await repository.open(NOW_MS)
        await repository.close()

    asyncio.run(make())
    return database


def with_repository(database: SparkDatabase, work: "Callable[[JobRepository], Any]") -> Any:
    """Do asynchronous work on a repository, from a test that is not asynchronous."""

    async def do() -> Any:
        repository = database.repository()
        await repository.open(NOW_MS)
        try:
            return await work(repository)
        finally:
            await repository.close()

    return asyncio.run(do())


def execute(database: SparkDatabase, statement: str, rows: Iterable[tuple[Any, ...]] = ((),)) -> None:
    """Run a statement with question marks for each row, all in one transaction."""
    if database.dialect is Dialect.SQLITE:
        with closing(sqlite3.connect(database.path)) as connection, connection:
            connection.executemany(statement, rows)
    else:
        with postgres(database) as session, session.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s").encode(), list(rows))


def fetch(database: SparkDatabase, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    if database.dialect is Dialect.SQLITE:
        with closing(sqlite3.connect(database.path)) as connection:
            return connection.execute(query).fetchall()
    with postgres(database) as session:
        return session.execute(query.encode()).fetchall()


def postgres(database: SparkDatabase) -> "psycopg.Connection[tuple[Any, ...]]":
    """A connection in whose transactions a test decides when to commit."""
    return psycopg.connect(database.url, options=f"-c search_path={database.schema}")


def events(*ids: str, **fields: Any) -> list[StoredEvent]:
    """Events with these ids."""
    return [StoredEvent(id=name, source="shop", type="orders:created", received_ms=NOW_MS, **fields) for name in ids]


ATTEMPT = "INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms) VALUES (?, ?, 'DELIVERED', ?, 1)"
JOB = """
INSERT INTO {} (
    id, tenant, type, group_key, sequence, mode, state, target, pool, content_type, headers, due_at_ms, attempt_count,
    delivery_count, publish_round, created_at_ms, updated_at_ms, finished_at_ms
) VALUES (?, '', 't', ?, 99, ?, ?, 'https://a.example', 'p', 'c', '{{}}', 1, 0, 0, 0, ?, 1, ?)
"""


def add_jobs(
    database: SparkDatabase, rows: "Iterable[tuple[str, str, int, int, int, int | None]]", table: str = "jobs"
) -> None:
    """Jobs as (id, group key, mode, state, created, finished)."""
    execute(database, JOB.format(table), rows)


def add_attempts(database: SparkDatabase, *job_ids: str, at_ms: int = NOW_MS) -> None:
    """A delivered attempt of each job, in one transaction."""
    execute(database, ATTEMPT, [(job_id, 1, at_ms) for job_id in job_ids])

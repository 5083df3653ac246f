"""The database of jobs, one of each kind, for all suites; and direct ways into it, past the repository."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from penstock.domain.event import StoredEvent
from penstock.edge.clock import SystemClock
from penstock.events.store.postgres import postgres_repository
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import sqlite_repository
from penstock.events.store.statements import Dialect
from penstock.spark.database import SparkDatabase
from tests.rigs.job_schemas import Fresh, new_schema, postgres

NOW_MS = 1_700_000_000_000
Connect = Callable[[], JobRepository]
Result = TypeVar("Result")


@pytest.fixture(params=["sqlite", "postgres"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Which database the test is about."""
    return str(request.param)


@pytest.fixture
def empty_database(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SparkDatabase]:
    """A database without tables: a new file, or a new schema."""
    if database_kind == "sqlite":
        yield SparkDatabase(f"sqlite://{tmp_path}/jobs.db")
        return
    with new_schema(str(request.getfixturevalue("postgres_url"))) as found:
        yield found


@pytest.fixture
def database(database_kind: str, request: pytest.FixtureRequest) -> SparkDatabase:
    """A database with the tables of jobs, one of each kind."""
    found: SparkDatabase = request.getfixturevalue(f"{database_kind}_place")
    return found


@pytest.fixture
def sqlite_place(tmp_path: Path) -> SparkDatabase:
    """An SQLite file with the tables of jobs."""
    return made(SparkDatabase(f"sqlite://{tmp_path}/jobs.db"))


@pytest.fixture(scope="session")
def job_schemas() -> Iterator[list[Fresh]]:
    """Schemas with the tables of jobs that no test uses at the moment."""
    schemas: list[Fresh] = []
    yield schemas
    for schema in schemas:
        schema.session.close()


@pytest.fixture
def postgres_place(postgres_url: str, job_schemas: list[Fresh]) -> Iterator[SparkDatabase]:
    """A schema of PostgreSQL with the tables of jobs."""
    schema = job_schemas.pop() if job_schemas else Fresh.of(made(SparkDatabase(postgres_url, f"jobs_{uuid4().hex}")))
    yield schema.database
    if schema.restore():
        job_schemas.append(schema)
    else:
        schema.drop()


@pytest.fixture
def connect(database: SparkDatabase) -> Connect:
    """Makes repositories of one database, as a node has them: called when jobs arrive."""
    return connecting(database)


def connecting(database: SparkDatabase) -> Connect:
    """Return what makes such repositories."""
    if database.dialect is Dialect.SQLITE:
        return lambda: sqlite_repository(database.path, durability="survives-process-crash-only")
    return lambda: postgres_repository(database.url, schema=database.schema, listen=True)


@pytest.fixture
async def jobs(database: SparkDatabase) -> AsyncIterator[JobRepository]:
    """The repository of `database`, open."""
    repository = database.repository()
    await repository.open(SystemClock().now_ms())
    yield repository
    await repository.close()


def made(database: SparkDatabase) -> SparkDatabase:
    """The same with its tables."""
    if database.dialect is Dialect.SQLITE and not Path(database.path).exists():
        with_tables(Path(database.path))
    else:
        with_repository(database, lambda jobs: jobs.counts())
    return database


def with_tables(path: Path) -> Path:
    """Make an SQLite file with the tables of jobs if it does not exist; return its path.

    It is a copy: creating the tables again for each test would take ten times as long.
    """
    if not path.exists():
        path.touch(0o600)
        path.write_bytes(_tables())
    return path


@cache
def _tables() -> bytes:
    # In a thread, as an asynchronous test has a running loop.
    with TemporaryDirectory() as directory, ThreadPoolExecutor(1) as thread:
        path = Path(directory) / "jobs.db"
        thread.submit(with_repository, SparkDatabase(f"sqlite://{path}"), lambda jobs: jobs.counts()).result()
        return path.read_bytes()


def with_repository(
    database: SparkDatabase, work: "Callable[[JobRepository], Awaitable[Result]]", now_ms: int = NOW_MS
) -> Result:
    """Do asynchronous work on a repository, from a test that is not asynchronous."""

    async def do() -> Result:
        repository = database.repository()
        await repository.open(now_ms)
        try:
            return await work(repository)
        finally:
            await repository.close()

    return asyncio.run(do())


def execute(database: SparkDatabase, statement: str, rows: Iterable[tuple[Any, ...]] = ((),)) -> None:
    """Run a statement with question marks for each row, all in one transaction."""
    if database.dialect is Dialect.SQLITE:
        with closing(sqlite3.connect(database.path, timeout=60)) as connection, connection:
            connection.executemany(statement, rows)
    else:
        with postgres(database) as session, session.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s").encode(), list(rows))


def fetch(database: SparkDatabase, query: str) -> list[tuple[Any, ...]]:
    """Run a statement; its rows, none if it has none."""
    if database.dialect is Dialect.SQLITE:
        with closing(sqlite3.connect(database.path, timeout=60)) as connection, connection:
            return connection.execute(query).fetchall()
    with postgres(database) as session:
        cursor = session.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


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

"""A database from before there were positions: its rows are kept, and streams read them first."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from penstock.events.store.migrations import migrations
from penstock.events.store.statements import Dialect
from penstock.spark.database import SparkDatabase
from tests.rigs.job_database import NOW_MS, add_attempts, events, execute, fetch, made, with_repository
from tests.rigs.job_schemas import postgres

EVENT = """
INSERT INTO events (
    id, tenant, source, external_id, type, data, content_type, attributes, received_ms, fanned_out
) VALUES (?, 't', 's', ?, 'orders:created', ?, 'c', '{}', ?, ?)
"""
OLD_EVENTS = [("e3", "x3", b"3", 10, 1), ("e1", "x1", b"1", 30, 0), ("e2", "x2", b"2", 20, 0)]
MIGRATIONS = "CREATE TABLE migrations (version bigint, name text, checksum text, works_with bigint{})"


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SparkDatabase]:
    """A database with the first migration only, and rows in it."""
    if request.param == "sqlite":
        database = SparkDatabase(f"sqlite://{tmp_path}/jobs.db")
        first = migrations(Dialect.SQLITE)[0]
        with closing(sqlite3.connect(database.path)) as connection:
            connection.executescript(first.text)
            connection.execute(MIGRATIONS.format(""))
            connection.commit()
    else:
        database = SparkDatabase(str(request.getfixturevalue("postgres_url")), f"jobs_{uuid4().hex}")
        first = migrations(Dialect.POSTGRES)[0]
        with psycopg.connect(database.url, autocommit=True) as session:
            session.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(database.schema)))
        with postgres(database) as connection_:
            connection_.execute(first.text.encode())
            connection_.execute(MIGRATIONS.format(", applied_at timestamptz DEFAULT now()").encode())
    record = (first.version, first.name, first.checksum, first.works_with)
    execute(database, "INSERT INTO migrations (version, name, checksum, works_with) VALUES (?, ?, ?, ?)", [record])
    execute(database, EVENT, OLD_EVENTS)
    add_attempts(database, "j2", at_ms=NOW_MS + 1)
    add_attempts(database, "j1", at_ms=NOW_MS)
    yield database
    if database.dialect is Dialect.POSTGRES:
        execute(database, f"DROP SCHEMA {database.schema} CASCADE")


def test_old_rows_are_kept_and_stand_before_new_ones(old: SparkDatabase) -> None:
    before = fetch(old, "SELECT id, external_id, data, received_ms, fanned_out FROM events ORDER BY id")
    made(old)
    with_repository(old, lambda jobs: jobs.add_events(events("e0")))
    add_attempts(old, "j0")

    assert fetch(
        old, "SELECT id, external_id, data, received_ms, fanned_out FROM events WHERE id <> 'e0' ORDER BY id"
    ) == (before)
    newest = fetch(old, "SELECT max(position) FROM events")[0][0]
    assert fetch(old, f"SELECT id FROM events WHERE position = {newest}") == [("e0",)]
    assert [job_id for (job_id,) in fetch(old, "SELECT job_id FROM attempts ORDER BY position, at_ms")] == [
        "j1",
        "j2",
        "j0",
    ]


def test_what_was_unique_still_is(old: SparkDatabase) -> None:
    made(old)

    known = with_repository(old, lambda jobs: jobs.add_events(events("e9", tenant="t", external_id="x2")[:1]))
    # Another source: a new one. The same source and id: the one that was told before.
    assert known == ["e9"]
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
        execute(old, EVENT, [("e8", "x2", b"", 1, 0)])
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
        add_attempts(old, "j1", at_ms=NOW_MS)


def test_statements_of_the_first_version_still_work(old: SparkDatabase) -> None:
    """An old node goes on writing while new ones start: it names its columns, and positions come by themselves."""
    made(old)
    execute(old, EVENT, [("by an old node", "x8", b"", 40, 0)])
    add_attempts(old, "by an old node")

    positions = fetch(old, "SELECT position FROM events WHERE id = 'by an old node'")
    assert positions[0][0] > 0
    assert fetch(old, "SELECT count(*) FROM events WHERE fanned_out = 0")[0][0] == 3

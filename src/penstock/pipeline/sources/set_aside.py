"""What the pipeline cannot use goes to the table `set_aside` with the reason, and the stream goes on."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from logging import getLogger

import msgspec

from penstock.domain.errors import PenstockError
from penstock.edge.clock import SystemClock
from penstock.events.errors import DatabaseFailed
from penstock.events.store.statements import Dialect
from penstock.pipeline.database import Database

_log = getLogger(__name__)
_REASON_CHARACTERS = 500
_BUSY_TIMEOUT_S = 10.0
_SQLITE = "INSERT INTO set_aside (source, row_id, reason, at_ms) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_POSTGRES = """
INSERT INTO set_aside (source, row_id, reason, at_ms)
SELECT source, row_id, reason, %s FROM unnest(%s::text[], %s::text[], %s::text[]) AS aside (source, row_id, reason)
ON CONFLICT DO NOTHING
"""

_Row = tuple[str, str, str]


class SetAside(msgspec.Struct, frozen=True):
    """A row that could not be used: its table, its key there, and why."""

    source: str
    row_id: str
    reason: str


def set_aside(database: Database, rows: Sequence[SetAside]) -> None:
    """Record rows, each once however often they are met; a database that refuses it costs a warning, not the read."""
    if not rows:
        return
    now_ms = SystemClock().now_ms()
    plain = [(_kept(row.source), _kept(row.row_id), _kept(row.reason)) for row in rows]
    _log.warning("%s: %d rows set aside, the first is %s", database.place, len(rows), plain[0])
    keep = _keep_in_sqlite if database.dialect is Dialect.SQLITE else _keep_in_postgres
    try:
        keep(database, plain, now_ms)
    except PenstockError as error:
        _log.warning("%s: what was set aside could not be recorded: %s", database.place, error)


def _keep_in_sqlite(database: Database, rows: list[_Row], now_ms: int) -> None:
    try:
        with closing(sqlite3.connect(database.path, timeout=_BUSY_TIMEOUT_S)) as connection, connection:
            connection.executemany(_SQLITE, [(*row, now_ms) for row in rows])
    except sqlite3.Error as error:
        raise DatabaseFailed(str(error)) from error


def _keep_in_postgres(database: Database, rows: list[_Row], now_ms: int) -> None:
    from psycopg import Error

    from penstock.engine.store.postgres_address import PostgresAddress

    address = PostgresAddress(database.url)
    try:
        with closing(address.connect(database.schema)) as session:
            session.execute(_POSTGRES, (now_ms, *(list(column) for column in zip(*rows, strict=True))))
    except Error as error:
        raise DatabaseFailed(address.explain(error)) from None


def _kept(text: str) -> str:
    """What both databases can hold."""
    return text[:_REASON_CHARACTERS].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")

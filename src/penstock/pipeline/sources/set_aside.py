"""What the pipeline cannot use goes to the table `set_aside` with the reason, and the stream goes on."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from logging import getLogger

import msgspec
import psycopg

from penstock.core.errors import PenstockError
from penstock.edge.clock import SystemClock
from penstock.jobs.queries import Dialect
from penstock.pipeline.database import Database
from penstock.queue.store.postgres_address import PostgresAddress

_log = getLogger(__name__)
_REASON_CHARACTERS = 500
_BUSY_TIMEOUT_S = 10.0
_SQLITE = "INSERT INTO set_aside (source, row_id, reason, at_ms) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_POSTGRES = """
INSERT INTO set_aside (source, row_id, reason, at_ms)
SELECT source, row_id, reason, %s FROM unnest(%s::text[], %s::text[], %s::text[]) AS aside (source, row_id, reason)
ON CONFLICT DO NOTHING
"""


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
    plain = [tuple(_kept(text) for text in (row.source, row.row_id, row.reason)) for row in rows]
    _log.warning("%s: %d rows set aside, the first is %s", database.place, len(rows), plain[0])
    try:
        if database.dialect is Dialect.SQLITE:
            with closing(sqlite3.connect(database.path, timeout=_BUSY_TIMEOUT_S)) as connection, connection:
                connection.executemany(_SQLITE, [(*row, now_ms) for row in plain])
        else:
            with closing(PostgresAddress(database.url).connect(database.schema)) as session:
                session.execute(_POSTGRES, (now_ms, *(list(column) for column in zip(*plain, strict=True))))
    except (sqlite3.Error, psycopg.Error, PenstockError) as error:
        _log.warning("%s: what was set aside could not be recorded: %s", database.place, type(error).__name__)


def _kept(text: str) -> str:
    """What both databases can hold."""
    return text[:_REASON_CHARACTERS].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")

"""Who holds a stream back: the oldest transaction that still runs, in any database of the PostgreSQL server.

A stream of attempts reads only below it (`sources/stream_source.py`).
"""

import logging

import msgspec

from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.database_reader import reader_for

log = logging.getLogger(__name__)

LONG_S = 60
"""A transaction that runs for longer is worth a warning."""

# The details of other users' sessions are hidden unless the user has the role pg_read_all_stats.
_OLDEST = """
SELECT pid, datname, usename, coalesce(state, ''),
    coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::bigint AS age_s
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
UNION ALL
SELECT NULL, database, owner, 'prepared as ' || gid, extract(epoch FROM clock_timestamp() - prepared)::bigint
FROM pg_prepared_xacts
ORDER BY age_s DESC LIMIT 1
"""


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction that has written something and has not ended; a prepared one has no process."""

    pid: int | None
    database: str
    user: str
    state: str
    age_s: int

    def __str__(self) -> str:
        process = "a prepared transaction" if self.pid is None else f"process {self.pid}"
        return f"{process} of {self.user} in database {self.database} ({self.state}) for {self.age_s} s"


def oldest_transaction(database: SparkDatabase) -> OpenTransaction | None:
    """Return the oldest transaction that holds streams back; None on SQLite, or if there is none."""
    if database.dialect is Dialect.SQLITE:
        return None
    reader = reader_for(database)
    try:
        return next((OpenTransaction(*row) for row in reader.rows(_OLDEST)), None)
    finally:
        reader.close()


def warn_of_long_transaction(database: SparkDatabase, long_s: int = LONG_S) -> None:
    """Log who holds streams back for long."""
    oldest = oldest_transaction(database)
    if oldest is not None and oldest.age_s >= long_s:
        log.warning("facts wait for a transaction that stays open: %s; end it to let them go on", oldest)

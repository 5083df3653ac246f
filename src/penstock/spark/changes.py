"""Waits until a database may have changed, at little cost while nothing happens.

SQLite has a number that changes with every commit of another connection, so nothing is read until it does. PostgreSQL
is asked again after a short pause, which grows while nothing happens.
"""

import sqlite3
from threading import Event

from penstock.events.errors import DatabaseFailed
from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase

POLL_S = 0.01
"""How often an SQLite file is asked whether it has changed."""

_FIRST_PAUSE_S = 0.02
_LAST_PAUSE_S = 0.1
_GROWTH = 1.1
_LONGEST_S = 1.0


class DatabaseWatch:
    """The changes that others make to a database; for one thread."""

    def __init__(self, database: SparkDatabase) -> None:
        self._changes = SqliteChanges(database) if database.dialect is Dialect.SQLITE else None
        self._pause_s = _FIRST_PAUSE_S

    def expect_more(self) -> None:
        """Ask often again, because something happened."""
        self._pause_s = _FIRST_PAUSE_S

    def wait(self, stopped: Event) -> None:
        """Return when the database may have changed, or when it is stopped."""
        if self._changes is None:
            stopped.wait(self._pause_s)
            self._pause_s = min(_LAST_PAUSE_S, self._pause_s * _GROWTH)
            return
        left = round(_LONGEST_S / POLL_S)
        while left and not stopped.is_set() and not self._changes.any():
            stopped.wait(POLL_S)
            left -= 1

    def close(self) -> None:
        """Close the connection."""
        if self._changes is not None:
            self._changes.close()


class SqliteChanges:
    """Knows whether another connection has committed since the last question; asking takes microseconds."""

    def __init__(self, database: SparkDatabase) -> None:
        self._place = database.place
        uri = f"{database.path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        self._last = -1

    def any(self) -> bool:
        """Return whether something changed; true for the first question."""
        try:
            (now,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise DatabaseFailed(f"{self._place} cannot be read: {error}") from error
        changed, self._last = now != self._last, now
        return bool(changed)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

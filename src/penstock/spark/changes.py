"""Waits until a database may have changed, at little cost while nothing happens.

SQLite has a number that changes with every commit of another connection, so nothing is read until it does. PostgreSQL
is asked again after a short pause, which grows while nothing happens.
"""

import sqlite3
from threading import Event

from penstock.edge.clock import stopwatch
from penstock.events.errors import DatabaseFailed
from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase

_LONGEST_S = 1.0
_GROWTH = 1.02


class PollPause:
    """The pause between two questions; it grows while nothing happens."""

    def __init__(self, dialect: Dialect) -> None:
        # SQLite is asked for one number, PostgreSQL for rows.
        self._first_s, self._last_s = (0.01, 0.03) if dialect is Dialect.SQLITE else (0.02, 0.1)
        self._next_s = self._first_s

    def next_s(self) -> float:
        """Return how long to wait now."""
        now_s, self._next_s = self._next_s, min(self._last_s, self._next_s * _GROWTH)
        return now_s

    def expect_more(self) -> None:
        """Ask often again, because something happened."""
        self._next_s = self._first_s


class DatabaseWatch:
    """The changes that others make to a database; for one thread."""

    def __init__(self, database: SparkDatabase) -> None:
        self._changes = SqliteChanges(database) if database.dialect is Dialect.SQLITE else None
        self._pause = PollPause(database.dialect)
        self.expect_more = self._pause.expect_more

    def wait(self, stopped: Event) -> None:
        """Return when the database may have changed, or when it is stopped."""
        until_s = stopwatch() + _LONGEST_S
        while not stopped.wait(self._pause.next_s()):
            if self._changes is None or self._changes.any() or stopwatch() >= until_s:
                return

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

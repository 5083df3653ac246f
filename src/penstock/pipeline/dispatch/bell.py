"""Whether there are lanes to look at, asked by a process that does nothing else."""

import sqlite3
from threading import Event
from typing import Protocol

import psycopg

from penstock.engine.store.postgres_address import PostgresAddress, Session
from penstock.jobs.errors import DatabaseFailed
from penstock.jobs.queries import Dialect, queries
from penstock.pipeline.database import Database

_POLL_S = 0.02
_BUSY_TIMEOUT_S = 10.0
_QUESTION = "any_lane_awake"


class Bell(Protocol):
    """Rings while lanes are awake."""

    def rings(self) -> bool:
        """Whether lanes are awake."""
        ...

    def wait(self, within_s: float) -> None:
        """Return when it may ring, or when the time is over."""

    def close(self) -> None:
        """Hang up."""


def bell_of(database: Database) -> Bell:
    """The bell of a database; it connects when it is asked for the first time."""
    return SqliteBell(database) if database.dialect is Dialect.SQLITE else PostgresBell(database)


class PostgresBell:
    """Hears of every commit that wakes lanes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._session: Session | None = None

    def rings(self) -> bool:
        """Whether lanes are awake; a connection that was lost is made anew once."""
        try:
            return self._ask()
        except psycopg.OperationalError:
            self.close()
        try:
            return self._ask()
        except psycopg.Error as error:
            address = PostgresAddress(self._database.url)
            raise DatabaseFailed(f"{address} cannot be read: {address.explain(error)}") from None

    def wait(self, within_s: float) -> None:
        """Return when somebody has woken lanes, or when the time is over."""
        if self._session is None:
            return
        try:
            for _ in self._session.notifies(timeout=within_s, stop_after=1):
                return
        except psycopg.OperationalError:
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _ask(self) -> bool:
        if self._session is None:
            self._session = PostgresAddress(self._database.url).connect(self._database.schema)
            self._session.execute("LISTEN penstock_jobs")
        row = self._session.execute(queries(Dialect.POSTGRES)[_QUESTION].encode()).fetchone()
        return bool(row and row[0])


class SqliteBell:
    """Nobody calls across processes here, so it looks often; that takes microseconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._never = Event()

    def rings(self) -> bool:
        """Whether lanes are awake."""
        try:
            if self._connection is None:
                uri = f"{self._database.path.as_uri()}?mode=ro"
                self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
            return bool(self._connection.execute(queries(Dialect.SQLITE)[_QUESTION]).fetchone()[0])
        except sqlite3.Error as error:
            raise DatabaseFailed(f"{self._database.place} cannot be read: {error}") from error

    def wait(self, within_s: float) -> None:
        """Return after a moment."""
        self._never.wait(min(within_s, _POLL_S))

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

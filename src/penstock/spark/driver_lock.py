"""One driver runs a streaming job; others stand by until it has ended, however it ended.

PostgreSQL: an advisory lock of a session, which ends with the session. SQLite: a lock on a file beside the database,
which ends with the process. So the next driver does not wait for a lease to expire.
"""

import fcntl
import logging
import os
from hashlib import sha256
from typing import Protocol

import psycopg

from penstock.edge.pause import pause
from penstock.engine.store.postgres_address import PostgresAddress, Session
from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""How often a driver that stands by tries, and one that runs looks whether its lock still holds."""


class DriverLock(Protocol):
    """The right to run a job on a database."""

    def acquire(self) -> bool:
        """Take it if it is free."""
        ...

    def is_held(self) -> bool:
        """Return whether it is still this driver's."""
        ...

    def close(self) -> None:
        """Give it back."""


def driver_lock(database: SparkDatabase, job: str) -> DriverLock:
    """Return the lock of a job."""
    if database.dialect is Dialect.SQLITE:
        return FileLock(f"{database.path}.{job}.lock")
    return SessionLock(database, job)


class FileLock:
    """A lock on a file, which stays when it is given back: another driver may wait for it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take it if it is free."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def is_held(self) -> bool:
        """Return whether it is still this driver's."""
        return self._file is not None

    def close(self) -> None:
        """Give it back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class SessionLock:
    """An advisory lock of PostgreSQL; it needs a connection of its own, not one of a pool of transactions."""

    def __init__(self, database: SparkDatabase, job: str) -> None:
        self._database = database
        self._address = PostgresAddress(database.url)
        digest = sha256(f"penstock driver {database.schema} {job}".encode()).digest()
        self._key = int.from_bytes(digest[:8], signed=True)
        self._session: Session | None = None

    def acquire(self) -> bool:
        """Take it if it is free."""
        if self._session is None:
            self._session = self._address.connect(self._database.schema)
        row = self._session.execute(b"SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone()
        if row is None or not row[0]:
            self.close()
            return False
        return True

    def is_held(self) -> bool:
        """Return whether the session still lives, and the lock with it."""
        if self._session is None:
            return False
        try:
            self._session.execute(b"SELECT 1")
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        """Give it back."""
        if self._session is not None:
            self._session.close()
            self._session = None


async def until_acquired(lock: DriverLock, job: str) -> None:
    """Stand by until the lock is this driver's."""
    if lock.acquire():
        return
    log.warning("another driver runs %s: this one stands by", job)
    while not lock.acquire():
        await pause(RETRY_S)
    log.warning("the other driver of %s has ended: this one takes over", job)


async def until_lost(lock: DriverLock) -> None:
    """Return when the lock is not this driver's any more."""
    while lock.is_held():
        await pause(RETRY_S)

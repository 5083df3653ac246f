"""The repository on an SQLite file: one writer thread, which commits together what waits, and one reader.

With one writer nothing is locked. Other processes may use the database too; a small file beside it calls those of them
that wait for jobs.
"""

import asyncio
import logging
import os
import re
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from penstock.domain.errors import InvalidArgument, PenstockError
from penstock.edge.disk_space import DiskSpace, FreeBytes, free_bytes, is_disk_full
from penstock.edge.private_files import create_private
from penstock.events.errors import DatabaseFailed, ValuesRefused
from penstock.events.store.database import JobSignal, Transaction, Work
from penstock.events.store.migrations import Applied, migrations, missing
from penstock.events.store.repository import JobRepository
from penstock.events.store.shared_signal import SharedSignal
from penstock.events.store.sqlite.transaction import SqliteTransaction
from penstock.events.store.statements import Dialect

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_SYNCHRONOUS = {
    "fsync": "PRAGMA synchronous = FULL",
    "survives-process-crash-only": "PRAGMA synchronous = NORMAL",
}
_UNFLUSHED = _SYNCHRONOUS["survives-process-crash-only"]
_SETTINGS = (
    "PRAGMA cache_size = -65536",
    "PRAGMA wal_autocheckpoint = 8192",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA secure_delete = OFF",
    "PRAGMA temp_store = MEMORY",
)
# On macOS a plain fsync leaves the data in the drive's cache.
_DARWIN_SETTINGS = ("PRAGMA fullfsync = ON", "PRAGMA checkpoint_fullfsync = ON")
_BUSY_TIMEOUT_S = 10.0
_TOGETHER = 128
_STATEMENTS_KEPT = 256
_END_OF_STATEMENT = re.compile(r";\s*$", re.MULTILINE)
# Besides SQLite's own errors: an integer past 64 bits, text that is not Unicode.
_REFUSALS = (sqlite3.Error, OverflowError, UnicodeError)
_BAD_VALUES = (OverflowError, UnicodeError, sqlite3.DataError, sqlite3.IntegrityError, sqlite3.ProgrammingError)
_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, works_with INTEGER NOT NULL
)
"""
_APPLIED = "SELECT version, name, checksum, works_with FROM migrations ORDER BY version"
_RECORD = "INSERT INTO migrations (version, name, checksum, works_with) VALUES (?, ?, ?, ?)"


class _Task(NamedTuple):
    """Work, the future of its result, and whether it has to be on the disk by then."""

    work: Work[Any]
    done: "asyncio.Future[Any]"
    flushed: bool


class SqliteDatabase:
    """Jobs in one file; other processes may use it too, and are called when jobs arrive."""

    def __init__(
        self, path: str | os.PathLike[str], *, durability: str = "fsync", free: FreeBytes = free_bytes
    ) -> None:
        if durability not in _SYNCHRONOUS:
            choices = " or ".join(_SYNCHRONOUS)
            raise InvalidArgument(f"durability is {durability!r}: use {choices}")
        self._path = Path(path).resolve()
        self._synchronous = _SYNCHRONOUS[durability]
        # That of the writer at present.
        self._flushing = self._synchronous
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._reading = ThreadPoolExecutor(1, "jobs-reader")
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        # For the thread of the event loop.
        self._own_reader: sqlite3.Connection | None = None
        self._signal: SharedSignal | None = None
        self._refuses = False
        self._disk_space = DiskSpace(self._path.parent, free)

    @property
    def signal(self) -> JobSignal:
        """Called when jobs may be claimed."""
        if self._signal is None:
            raise DatabaseFailed(f"the database {self._path} is not open")
        return self._signal

    async def open(self, now_ms: int) -> None:
        """Create or migrate the tables."""
        if self._thread is not None:
            raise DatabaseFailed(f"the database {self._path} is open already")
        loop = asyncio.get_running_loop()
        try:
            self._writer = await loop.run_in_executor(self._reading, self._migrated)
            self._reader = await loop.run_in_executor(self._reading, self._connect)
            self._own_reader = await loop.run_in_executor(self._reading, self._connect)
        except sqlite3.Error as error:
            raise DatabaseFailed(f"the database {self._path} cannot be opened: {_explained(error)}") from error
        self._signal = SharedSignal(self._path.with_name(f"{self._path.name}-calls"))
        self._thread = Thread(target=self._serve, args=(loop, self._writer), name="jobs-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Work[Result]) -> Result:
        """Do work in a transaction that others may share; work that fails takes only its own part back."""
        return await self._done(work, flushed=True)

    # One statement needs no other path here.
    write_one = write

    async def write_unflushed(self, work: Work[Result]) -> Result:
        """Do work as `write` does, and leave it to the next flush to bring it to the disk."""
        return await self._done(work, flushed=False)

    async def _done(self, work: Work[Result], *, flushed: bool) -> Result:
        if self._thread is None:
            raise DatabaseFailed(f"the database {self._path} is not open")
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._tasks.put(_Task(work, done, flushed))
        return await done

    async def read(self, work: Work[Result]) -> Result:
        """Do work that changes nothing."""
        if self._reader is None:
            raise DatabaseFailed(f"the database {self._path} is not open")
        transaction = SqliteTransaction(self._reader)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, work, transaction)
        except _REFUSALS as error:
            raise DatabaseFailed(f"the database {self._path} cannot be read: {error}") from error

    async def read_few(self, work: Work[Result]) -> Result:
        """Do work that reads some rows by their keys, here: to pass it to another thread costs more than to do it."""
        if self._own_reader is None:
            raise DatabaseFailed(f"the database {self._path} is not open")
        try:
            return work(SqliteTransaction(self._own_reader))
        except _REFUSALS as error:
            raise DatabaseFailed(f"the database {self._path} cannot be read: {error}") from error

    def trouble(self) -> str | None:
        """Return what keeps it from taking changes: a full disk."""
        return self._disk_space.problem()

    def require_room(self) -> None:
        """Raise DatabaseFailed while the disk is nearly full."""
        if (lack := self._disk_space.lack()) is not None:
            raise DatabaseFailed(lack)

    async def keep_months(self, now_ms: int) -> None:
        """Nothing to do: the tables have no partitions."""

    async def drop_before(self, before_ms: int) -> None:
        """Delete what the archive has from before."""

        def delete(transaction: Transaction) -> None:
            transaction.all("delete_old_archive", before_ms=before_ms)
            transaction.all("delete_old_attempts", before_ms=before_ms)

        await self.write(delete)

    async def close(self) -> None:
        """Finish the work that was given, and close the file."""
        if self._thread is not None:
            self._tasks.put(None)
            await asyncio.get_running_loop().run_in_executor(self._reading, self._thread.join)
            self._thread = None
        self._reading.shutdown()
        # The writer last: the last connection to close folds the log into the database.
        for connection in (self._own_reader, self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._own_reader = self._reader = self._writer = None
        if self._signal is not None:
            self._signal.close()
            self._signal = None

    def _connect(self) -> sqlite3.Connection:
        create_private(self._path)
        connection = sqlite3.connect(
            self._path,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS_KEPT,
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            for setting in (self._synchronous, *_SETTINGS, *(_DARWIN_SETTINGS if sys.platform == "darwin" else ())):
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrated(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            # At once, so that of two nodes which start together the second finds the work done.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_MIGRATIONS_TABLE)
            applied = [Applied(*row) for row in connection.execute(_APPLIED)]
            for step in missing(migrations(Dialect.SQLITE), applied):
                for statement in _END_OF_STATEMENT.split(step.text):
                    connection.execute(statement)
                connection.execute(_RECORD, (step.version, step.name, step.checksum, step.works_with))
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _serve(self, loop: asyncio.AbstractEventLoop, writer: sqlite3.Connection) -> None:
        """Run the writer thread: everything that waits goes into one commit."""
        open_for_tasks = True
        while open_for_tasks:
            tasks: list[_Task] = []
            task = self._tasks.get()
            while task is not None:
                tasks.append(task)
                if len(tasks) == _TOGETHER or self._tasks.empty():
                    break
                task = self._tasks.get()
            open_for_tasks = task is not None
            if tasks:
                self._commit(loop, writer, tasks)

    def _commit(self, loop: asyncio.AbstractEventLoop, writer: sqlite3.Connection, tasks: list[_Task]) -> None:
        transaction = SqliteTransaction(writer)
        changes_before = writer.total_changes
        try:
            self._set_flushing(writer, flushed=any(task.flushed for task in tasks))
            writer.execute("BEGIN IMMEDIATE")
            try:
                results: list[object] = [task.work(transaction) for task in tasks]
            except BaseException as error:
                transaction, results = self._without_failed(writer, tasks, error)
            if writer.in_transaction:
                writer.execute("COMMIT")
        except _REFUSALS as error:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            refusal = self._refused(error)
            results = [refusal] * len(tasks)
            if not self._refuses:
                # Logged once; the callers get the error each time.
                log.error(str(refusal.error))
            self._refuses = True
        else:
            self._refuses = False
        if transaction.overwrites:
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._note_room(results, changed=writer.total_changes > changes_before)
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, [task.done for task in tasks], results)
        if transaction.announced and self._signal is not None:
            self._signal.call()
            self._signal.call_others()

    def _set_flushing(self, writer: sqlite3.Connection, *, flushed: bool) -> None:
        """Have the next commit flushed, with all that were not before it, or not."""
        wanted = self._synchronous if flushed else _UNFLUSHED
        if wanted != self._flushing:
            writer.execute(wanted)
            self._flushing = wanted

    def _note_room(self, results: list[object], *, changed: bool) -> None:
        causes = (result.error.__cause__ for result in results if isinstance(result, _Raised))
        lack = next(filter(is_disk_full, causes), None)
        if lack is not None:
            self._disk_space.write_failed(lack)
        elif changed:
            # A commit that changes nothing needs no room, and shows none.
            self._disk_space.write_succeeded()

    def _without_failed(
        self, writer: sqlite3.Connection, tasks: list[_Task], error: BaseException
    ) -> tuple[SqliteTransaction, list[object]]:
        """Do tasks again after one of them has failed, so that only that one is taken back.

        Savepoints, which this needs, cost a third of a transaction: so only now.
        """
        # After some errors, a full disk among them, SQLite has ended the transaction by itself.
        if not writer.in_transaction:
            raise error
        writer.execute("ROLLBACK")
        transaction = SqliteTransaction(writer)
        if len(tasks) == 1:
            return transaction, [self._raised(error)]
        writer.execute("BEGIN IMMEDIATE")
        return transaction, [self._attempt(writer, transaction, task.work) for task in tasks]

    def _attempt(self, writer: sqlite3.Connection, transaction: SqliteTransaction, work: Work[Any]) -> object:
        writer.execute("SAVEPOINT task")
        try:
            result = work(transaction)
        except BaseException as error:
            if not writer.in_transaction:
                raise
            writer.execute("ROLLBACK TO task")
            result = self._raised(error)
        writer.execute("RELEASE task")
        return result

    def _raised(self, error: BaseException) -> "_Raised":
        return self._refused(error) if isinstance(error, _REFUSALS) else _Raised(error)

    def _refused(self, error: BaseException) -> "_Raised":
        kind = ValuesRefused if isinstance(error, _BAD_VALUES) else DatabaseFailed
        refusal: PenstockError = kind(
            f"the database {self._path} refused a change, and nothing of it was kept: {_explained(error)}"
        )
        refusal.__cause__ = error
        return _Raised(refusal)


def _explained(error: BaseException) -> str:
    if is_disk_full(error):
        return "its disk is full; make room there, or move the data to a larger one"
    return str(error)


class _Raised:
    """A result that is an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _settle(futures: "list[asyncio.Future[Any]]", results: list[object]) -> None:
    for done, result in zip(futures, results, strict=True):
        if done.done():
            continue
        if isinstance(result, _Raised):
            done.set_exception(result.error)
        else:
            done.set_result(result)


def sqlite_repository(
    path: str | os.PathLike[str], *, durability: str = "fsync", free: FreeBytes = free_bytes
) -> JobRepository:
    """Return the repository on one file of this machine; open it before use."""
    return JobRepository(SqliteDatabase(path, durability=durability, free=free))

"""The store on a local disk: one SQLite database in write-ahead mode, with one writer and one reader."""

import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NoReturn

from msgspec.structs import astuple

from penstock.domain.errors import InvalidArgument
from penstock.edge.disk_space import DiskSpace, FreeBytes, free_bytes
from penstock.edge.private_files import create_private
from penstock.engine.errors import StoreFailed
from penstock.engine.store import sqlite_statements as statement
from penstock.engine.store.checkpoints import Checkpoints
from penstock.engine.store.directory_lock import DirectoryLock
from penstock.engine.store.flush import FileFlush
from penstock.engine.store.port import (
    DamagedRow,
    DedupRow,
    DeliveryRow,
    QueueRecord,
    Shares,
    StoredSegment,
    StoreTotals,
    StreamRecord,
    WriteBatch,
)
from penstock.engine.store.sqlite_statements import migrate

_DURABILITIES = ("fsync", "survives-process-crash-only")
_WRITER_SETTINGS = (
    # A commit is written, not flushed: `flush` does that. Checkpoints flush by themselves.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA cache_size = -65536",
    # See `checkpoints`.
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA journal_size_limit = 67108864",
    # Some builds overwrite deleted data, which would write every message twice.
    "PRAGMA secure_delete = OFF",
)
_READER_SETTINGS = ("PRAGMA query_only = ON", "PRAGMA cache_size = -16384")
# On macOS a plain fsync leaves the data in the drive's cache.
_DARWIN_SETTINGS = ("PRAGMA fullfsync = ON", "PRAGMA checkpoint_fullfsync = ON")
_BUSY_TIMEOUT_S = 10.0
_PAGE_BYTES = 4096
# Besides SQLite's own errors: an integer above 64 bits, text that is not valid Unicode.
_REFUSALS = (sqlite3.Error, OverflowError, UnicodeError)


class SqliteStore:
    """Streams and queues in one SQLite database that one process owns."""

    durable = True
    local = True
    lost = None
    epoch = 0

    def __init__(
        self, path: str | os.PathLike[str], *, durability: str = "fsync", free: FreeBytes = free_bytes
    ) -> None:
        if durability not in _DURABILITIES:
            choices = " or ".join(_DURABILITIES)
            raise InvalidArgument(f"durability is {durability!r}: use {choices}")
        self._path = Path(path).resolve()
        self.disk_space = DiskSpace(self._path.parent, free)
        self._flushes = durability == "fsync"
        self.flush: FileFlush | None = None
        self._directory_lock = DirectoryLock(self._path.with_name(self._path.name + ".lock"))
        self._write_lock = Lock()
        self._read_lock = Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._checkpoints = Checkpoints(partial(self._connect, ()))

    def open(self) -> tuple[list[StreamRecord], list[QueueRecord]]:
        """Lock, migrate and read the catalog; raise StoreLocked if another process has it."""
        self._directory_lock.acquire()
        try:
            self._writer = self._connect(_WRITER_SETTINGS)
            migrate(self._writer, str(self._path))
            self._reader = self._connect(_READER_SETTINGS)
            streams = [StreamRecord(*row) for row in self._reader.execute(statement.STREAMS)]
            queues = [QueueRecord(*row) for row in self._reader.execute(statement.QUEUES)]
            if self._flushes:
                self.flush = FileFlush(self._path.with_name(self._path.name + "-wal"))
                self.flush.wait()
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise StoreFailed(f"the database {self._path} cannot be opened: {error}") from error
        except BaseException:
            self.close()
            raise
        return streams, queues

    def apply(self, batch: WriteBatch) -> Shares:
        """Commit a batch and return the shares of its `collect_streams`; raise StoreFailed if nothing was saved."""
        with self._write_lock:
            writer = self._opened(self._writer)
            if self.flush is not None:
                self.flush.check()
            try:
                writer.execute("BEGIN IMMEDIATE")
                _write(writer, batch)
                shares = _collect(writer, batch.collect_streams)
                writer.execute("COMMIT")
            except BaseException as error:
                _roll_back(writer)
                if isinstance(error, _REFUSALS):
                    self._refuse(error)
                raise
            self.disk_space.write_succeeded()
            self._checkpoints.wrote(writer, _logged_bytes(batch))
        return shares

    def require_owned(self) -> None:
        """Do nothing: the database belongs to this process until it ends."""

    def totals(self, queue_id: int) -> StoreTotals:
        """Return what a queue still has."""
        with self._reading() as reader:
            return StoreTotals(*reader.execute(statement.TOTALS, (queue_id,)).fetchone())

    def read(self, queue_id: int, from_seq: int, max_messages: int, max_bytes: int) -> list[StoredSegment]:
        """Return the next segments a queue is not done with, at least one if there is any."""
        with self._reading() as reader:
            try:
                segments = _segments(reader, queue_id, from_seq)
                return _until(segments, max_messages, max_bytes)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                segments = _segments_one_by_one(reader, queue_id, from_seq)
                return _until(segments, max_messages, max_bytes)

    def deliveries(self, queue_id: int, first_seq: int, last_seq: int) -> list[DeliveryRow]:
        """Return the delivery counts of messages that came back."""
        with self._reading() as reader:
            rows = reader.execute(statement.DELIVERIES, (queue_id, first_seq, last_seq))
            return [DeliveryRow(*row) for row in rows]

    def last_leases(self, now_ms: int) -> dict[int, int]:
        """Return the last sequence with a lease that still runs, by queue id."""
        with self._reading() as reader:
            return dict(reader.execute(statement.LAST_LEASES, (now_ms,)))

    def dedups(self, now_ms: int) -> list[DedupRow]:
        """Return deduplication ids that have not expired, oldest first."""
        with self._reading() as reader:
            return [DedupRow(*row) for row in reader.execute(statement.DEDUPS, (now_ms,))]

    def shares(self) -> Shares:
        """Return how many queues need each segment, for all streams."""
        with self._reading() as reader:
            streams = [stream_id for (stream_id,) in reader.execute(statement.SHARED_STREAMS)]
            return {stream_id: _shares(reader, stream_id) for stream_id in streams}

    def damaged(self) -> list[DamagedRow]:
        """Return the records that were set aside."""
        with self._reading() as reader:
            return [DamagedRow(*row) for row in reader.execute(statement.DAMAGED)]

    def close(self) -> None:
        """Release files, connections and locks."""
        with self._write_lock, self._read_lock:
            self._checkpoints.close()
            # The writer last: the last connection to close copies the log into the database.
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None
            if self.flush is not None:
                self.flush.close()
                self.flush = None
            self._directory_lock.release()

    def _connect(self, settings: Iterable[str]) -> sqlite3.Connection:
        create_private(self._path)
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreFailed(f"{self._path} cannot have a write-ahead log: use a local disk")
            for setting in settings:
                connection.execute(setting)
            if sys.platform == "darwin":
                for setting in _DARWIN_SETTINGS:
                    connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._read_lock:
            reader = self._opened(self._reader)
            try:
                yield reader
            except _REFUSALS as error:
                raise StoreFailed(f"the database {self._path} cannot be read: {error}") from error

    def _opened(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise StoreFailed(f"the database {self._path} is not open")
        return connection

    def _refuse(self, error: BaseException) -> NoReturn:
        self.disk_space.write_failed(error)
        if self.disk_space.is_exhausted:
            message = f"the disk of {self._path} is full: free up space; nothing of the batch was saved"
        else:
            message = f"the database {self._path} refused a batch, and nothing of it was saved: {error}"
        raise StoreFailed(message) from error


def _write(writer: sqlite3.Connection, batch: WriteBatch) -> None:
    many = writer.executemany
    if batch.put_streams:
        many(statement.PUT_STREAM, map(astuple, batch.put_streams))
    if batch.put_queues:
        many(statement.PUT_QUEUE, map(astuple, batch.put_queues))
    if batch.seq_limits:
        many(statement.RAISE_SEQ_LIMIT, [(limit, stream) for stream, limit in batch.seq_limits.items()])
    if batch.segments:
        added = many(
            statement.ADD_SEGMENT,
            [(s.stream_id, s.first_seq, s.count, s.size_bytes, b"".join(s.frames)) for s in batch.segments],
        )
        if added.rowcount != len(batch.segments):
            raise sqlite3.IntegrityError("a segment already exists at this position")
    if batch.dedups:
        many(statement.PUT_DEDUP, map(astuple, batch.dedups))
    if batch.deliveries:
        many(statement.PUT_DELIVERY, map(astuple, batch.deliveries))
    if batch.acks:
        many(statement.PUT_ACK, map(astuple, batch.acks))
    if batch.clone_acks:
        many(statement.CLONE_ACKS, [(fresh, queue) for queue, fresh in batch.clone_acks])
    if batch.forget_deliveries:
        many(statement.FORGET_DELIVERIES, batch.forget_deliveries)
    if batch.damaged:
        many(statement.ADD_DAMAGED, map(astuple, batch.damaged))
    _remove(writer, batch)


def _remove(writer: sqlite3.Connection, batch: WriteBatch) -> None:
    for statements, rows in (
        (statement.PURGE_QUEUE, [(seq, queue_id) for queue_id, seq in batch.purge_queues]),
        (statement.PURGE_DEDUPS, batch.forget_dedups),
        (statement.DROP_SEGMENT, batch.drop_segments),
        (statement.SHRINK_STREAM, batch.shrink_streams),
        (statement.DROP_QUEUE, [(queue_id,) for queue_id in batch.drop_queues]),
        (statement.DROP_STREAM, [(stream_id,) for stream_id in batch.drop_streams]),
        (statement.COLLECT_STREAM, [(stream_id,) for stream_id in batch.collect_streams]),
    ):
        if rows:
            for text in statements:
                writer.executemany(text, rows)
    if batch.dedup_horizon_ms > 0:
        writer.execute(statement.FORGET_DEDUPS, (batch.dedup_horizon_ms,))


def _logged_bytes(batch: WriteBatch) -> int:
    """Estimate how much a batch adds to the write-ahead log: its payloads, and pages of tables and indexes."""
    rows = 2 * len(batch.segments) + len(batch.dedups) + len(batch.acks) + len(batch.deliveries)
    rows += 2 * len(batch.drop_segments)
    return sum([len(frame) for segment in batch.segments for frame in segment.frames]) + (rows + 2) * _PAGE_BYTES


def _collect(writer: sqlite3.Connection, stream_ids: Iterable[int]) -> Shares:
    return {stream_id: _shares(writer, stream_id) for stream_id in stream_ids}


def _shares(connection: sqlite3.Connection, stream_id: int) -> dict[int, int]:
    return dict(connection.execute(statement.SHARES, (stream_id, stream_id)))


def _roll_back(writer: sqlite3.Connection) -> None:
    # SQLite ends the transaction itself after some errors, such as a full disk.
    if writer.in_transaction:
        with suppress(sqlite3.Error):
            writer.execute("ROLLBACK")


def _segments(reader: sqlite3.Connection, queue_id: int, from_seq: int) -> Iterator[StoredSegment]:
    for row in reader.execute(statement.READ, (from_seq, queue_id)):
        yield StoredSegment(*row)


def _segments_one_by_one(reader: sqlite3.Connection, queue_id: int, from_seq: int) -> Iterator[StoredSegment]:
    """Do the same as `_segments`, with empty bytes in place of damaged pages."""
    for stream_id, first_seq, count, size_bytes in reader.execute(statement.PLACES, (from_seq, queue_id)):
        ack = _readable_row(reader, statement.DEAD, (queue_id, first_seq))
        if ack == (None,):
            continue
        payload = _readable_row(reader, statement.PAYLOAD, (stream_id, first_seq))
        yield StoredSegment(
            first_seq, count, size_bytes, (payload and payload[0]) or b"", None if ack is None else ack[0]
        )


def _readable_row(reader: sqlite3.Connection, text: str, key: tuple[int, int]) -> tuple[bytes | None] | None:
    try:
        row: tuple[bytes | None] | None = reader.execute(text, key).fetchone()
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        return (b"",)
    return row


def _is_damage(error: sqlite3.Error) -> bool:
    # Only permanent damage: taking a temporary error for damage would set good messages aside.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF == sqlite3.SQLITE_CORRUPT


def _until(segments: Iterator[StoredSegment], max_messages: int, max_bytes: int) -> list[StoredSegment]:
    taken: list[StoredSegment] = []
    messages = size_bytes = 0
    for segment in segments:
        taken.append(segment)
        messages += segment.count
        size_bytes += segment.size_bytes
        if messages >= max_messages or size_bytes >= max_bytes:
            break
    return taken

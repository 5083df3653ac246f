"""The embedded queue in SQL: its tables, group order, leases, acknowledgements, deduplication.

Every method is one blocking transaction. Processes share the tables, so no state is kept in memory.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

import msgspec

from penstock.domain.limits import MINUTE_MS
from penstock.domain.pointer import group_in_body
from penstock.edge.private_files import create_private
from penstock.queues.port import Publication, Received

DEDUP_WINDOW_MS = 5 * MINUTE_MS
_BUSY_TIMEOUT_S = 10.0
_SETTINGS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA secure_delete = OFF")


# `due_ms` is set only for the first message of a group, and for each message without a group, so that the index has one
# row per group.
_SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS queue_messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        queue TEXT NOT NULL,
        message_group TEXT,
        body BLOB NOT NULL,
        sent_ms INTEGER NOT NULL,
        due_ms INTEGER,
        visible_ms INTEGER NOT NULL DEFAULT 0,
        deliveries INTEGER NOT NULL DEFAULT 0,
        lease INTEGER,
        acked INTEGER NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE INDEX IF NOT EXISTS queue_messages_due ON queue_messages (queue, due_ms, seq) WHERE due_ms IS NOT NULL
    """,
    """
    CREATE INDEX IF NOT EXISTS queue_messages_group ON queue_messages (queue, message_group, seq)
    WHERE message_group IS NOT NULL
    """,
    """
    CREATE TABLE IF NOT EXISTS queue_dedup (
        queue TEXT NOT NULL,
        dedup_id TEXT NOT NULL,
        expires_ms INTEGER NOT NULL,
        PRIMARY KEY (queue, dedup_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX IF NOT EXISTS queue_dedup_expires ON queue_dedup (expires_ms)",
)


_DUE = """
    SELECT seq, message_group, body, deliveries, acked FROM queue_messages
    WHERE queue = ? AND due_ms <= ? ORDER BY due_ms, seq LIMIT ?
"""
_NEXT_DUE = "SELECT min(due_ms) FROM queue_messages WHERE queue = ? AND due_ms IS NOT NULL"
# The oldest message of a queue is the first of its group.
_OLDEST_SENT = "SELECT min(sent_ms) FROM queue_messages WHERE queue = ? AND due_ms IS NOT NULL"
_FOLLOWERS = """
    SELECT seq, message_group, body, deliveries, acked, visible_ms FROM queue_messages
    WHERE queue = ? AND message_group = ? AND seq > ? ORDER BY seq LIMIT ?
"""
_LEASE = """
    UPDATE queue_messages SET deliveries = deliveries + 1, lease = deliveries + 1, visible_ms = :until_ms,
        due_ms = CASE WHEN due_ms IS NULL THEN NULL ELSE :until_ms END
    WHERE seq = :seq
"""
_EXTEND = """
    UPDATE queue_messages SET visible_ms = :until_ms, due_ms = CASE WHEN due_ms IS NULL THEN NULL ELSE :until_ms END
    WHERE seq = :seq AND lease = :lease
"""
_NACK = """
    UPDATE queue_messages SET visible_ms = :until_ms, due_ms = CASE WHEN due_ms IS NULL THEN NULL ELSE :until_ms END,
        lease = NULL
    WHERE seq = :seq AND lease = :lease
"""
_DELETE = "DELETE FROM queue_messages WHERE seq = ? AND lease = ? RETURNING message_group, due_ms"
_DELETE_ACKED = "DELETE FROM queue_messages WHERE seq = ?"
_REMEMBER_ACK = "UPDATE queue_messages SET acked = 1 WHERE seq = ?"
_NEXT_OF_GROUP = """
    UPDATE queue_messages SET due_ms = max(visible_ms, :now_ms) WHERE seq = (
        SELECT seq FROM queue_messages WHERE queue = :queue AND message_group = :group ORDER BY seq LIMIT 1
    )
"""
_INSERT = "INSERT INTO queue_messages (queue, message_group, body, sent_ms, due_ms) VALUES (?, ?, ?, ?, ?)"
_GROUP_EXISTS = "SELECT 1 FROM queue_messages WHERE queue = ? AND message_group = ? LIMIT 1"
_FORGET_DEDUPS = "DELETE FROM queue_dedup WHERE expires_ms <= ?"
_DEDUP = "INSERT OR IGNORE INTO queue_dedup (queue, dedup_id, expires_ms) VALUES (?, ?, ?)"


# seq, group, body, deliveries
_Row = tuple[int, str | None, bytes, int]


class Handle(msgspec.Struct, frozen=True):
    """One delivery of one message."""

    seq: int
    lease: int

    def __str__(self) -> str:
        return f"{self.seq}:{self.lease}"

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Parse the result of `str`."""
        seq, _, lease = text.partition(":")
        return cls(int(seq), int(lease))


class Ack(msgspec.Struct, frozen=True):
    """Remove a message."""

    handle: Handle


class Nack(msgspec.Struct, frozen=True):
    """End a lease; the message is due again after the delay."""

    handle: Handle
    delay_ms: int


class Extend(msgspec.Struct, frozen=True):
    """Restart a lease."""

    handle: Handle
    lease_ms: int


Command = Ack | Nack | Extend


class ReceiveResult(msgspec.Struct, frozen=True):
    """The messages of a receive, and when to try again if there are none."""

    messages: list[Received]
    next_due_ms: int | None
    # Changes when another connection has changed the database.
    version: int


class EmbeddedTable:
    """A queue of a database file, over one connection."""

    def __init__(self, path: str, queue: str) -> None:
        self._queue = queue
        self._connection = connect(path)
        self._durable = True

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def version(self) -> int:
        """Return a number that changes when another connection commits."""
        (number,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(number)

    def oldest_sent_ms(self) -> int | None:
        """Return when the oldest message was published; None if there is none."""
        (sent_ms,) = self._connection.execute(_OLDEST_SENT, (self._queue,)).fetchone()
        return None if sent_ms is None else int(sent_ms)

    def receive(self, most: int, lease_ms: int, now_ms: int) -> ReceiveResult:
        """Lease the due messages: the first of each group, then the following ones, each group in order."""
        version = self.version()
        # Checked without a lock first: an idle consumer must not block writers.
        (next_due_ms,) = self._connection.execute(_NEXT_DUE, (self._queue,)).fetchone()
        if next_due_ms is None or next_due_ms > now_ms:
            return ReceiveResult([], next_due_ms, version)
        # Losing a lease in a power failure only ends it, so there is no need to wait for the disk.
        with self._transaction(durable=False):
            rows = self._due(most, now_ms)
            rows += self._followers(rows, most, now_ms)
            until_ms = now_ms + lease_ms
            self._connection.executemany(_LEASE, [{"seq": row[0], "until_ms": until_ms} for row in rows])
        return ReceiveResult([_received(row) for row in rows], now_ms, version)

    def settle(self, commands: Sequence[Command], now_ms: int) -> None:
        """Apply acks, nacks and extensions, in order."""
        with self._transaction():
            for command in commands:
                match command:
                    case Ack(handle):
                        self._ack(handle, now_ms)
                    case Nack(handle, delay_ms):
                        self._set_due(_NACK, handle, now_ms + delay_ms)
                    case Extend(handle, lease_ms):
                        self._set_due(_EXTEND, handle, now_ms + lease_ms)

    def publish(self, publications: Sequence[Publication], now_ms: int) -> None:
        """Insert messages in order, without duplicates of the last five minutes."""
        with self._transaction():
            self._connection.execute(_FORGET_DEDUPS, (now_ms,))
            for publication in publications:
                if publication.dedup_id is None or self._is_new(publication.dedup_id, now_ms):
                    self._insert(publication, now_ms)

    def _due(self, most: int, now_ms: int) -> list[_Row]:
        while True:
            rows = self._connection.execute(_DUE, (self._queue, now_ms, most)).fetchall()
            acked = [(seq, group) for seq, group, _, _, acked in rows if acked]
            if not acked:
                return [row[:4] for row in rows]
            for seq, group in acked:
                self._connection.execute(_DELETE_ACKED, (seq,))
                self._promote_next(group, now_ms)

    def _followers(self, heads: list[_Row], most: int, now_ms: int) -> list[_Row]:
        """Return available messages that follow the first ones; the groups share the remaining room."""
        found: list[_Row] = []
        last = {group: seq for seq, group, _, _ in heads if group is not None}
        while last and len(heads) + len(found) < most:
            share = max(1, (most - len(heads) - len(found)) // len(last))
            for group, seq in list(last.items()):
                room = min(share, most - len(heads) - len(found))
                free = self._free_after(group, seq, room, now_ms)
                found += free
                if len(free) < share:
                    del last[group]
                else:
                    last[group] = free[-1][0]
        return found

    def _free_after(self, group: str, seq: int, most: int, now_ms: int) -> list[_Row]:
        """Return the next messages of a group, up to the first that is leased, delayed or acked."""
        rows = self._connection.execute(_FOLLOWERS, (self._queue, group, seq, most)).fetchall()
        return [row[:4] for row in takewhile(lambda row: not row[4] and row[5] <= now_ms, rows)]

    def _ack(self, handle: Handle, now_ms: int) -> None:
        row = self._connection.execute(_DELETE, (handle.seq, handle.lease)).fetchone()
        if row is None:
            # Redelivered or nacked since: it is removed when it becomes due.
            self._connection.execute(_REMEMBER_ACK, (handle.seq,))
            return
        group, due_ms = row
        if due_ms is not None:
            self._promote_next(group, now_ms)

    def _promote_next(self, group: str | None, now_ms: int) -> None:
        """Make the next message of a group due, as the first one is gone."""
        if group is not None:
            self._connection.execute(_NEXT_OF_GROUP, {"queue": self._queue, "group": group, "now_ms": now_ms})

    def _set_due(self, statement: str, handle: Handle, until_ms: int) -> None:
        self._connection.execute(statement, {"seq": handle.seq, "lease": handle.lease, "until_ms": until_ms})

    def _is_new(self, dedup_id: str, now_ms: int) -> bool:
        row = (self._queue, dedup_id, now_ms + DEDUP_WINDOW_MS)
        return self._connection.execute(_DEDUP, row).rowcount == 1

    def _insert(self, publication: Publication, now_ms: int) -> None:
        group = publication.group or group_in_body(publication.body)
        waits = group is not None and self._connection.execute(_GROUP_EXISTS, (self._queue, group)).fetchone()
        due_ms = None if waits else now_ms
        self._connection.execute(_INSERT, (self._queue, group, publication.body, now_ms, due_ms))

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[None]:
        if durable is not self._durable:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def connect(path: str) -> sqlite3.Connection:
    """Open the database at `path` and create missing tables; raise sqlite3.Error if that fails."""
    # One thread at a time uses it, but not always the same.
    create_private(path)
    connection = sqlite3.connect(path, _BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        for setting in _SETTINGS:
            connection.execute(setting)
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _received(row: _Row) -> Received:
    seq, group, body, deliveries = row
    return Received(str(seq), body, group, str(Handle(seq, deliveries + 1)), group is not None)

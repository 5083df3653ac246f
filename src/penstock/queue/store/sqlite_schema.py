"""The tables of the SQLite store, and how a database of an older version becomes one of this version."""

import sqlite3

from penstock.core.errors import FailedPrecondition

# Each migration is one transaction and ends by recording its version. A released one is never edited.
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE streams (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL, config BLOB NOT NULL, seq_limit INTEGER NOT NULL
        )
        """,
        """
        CREATE TABLE queues (
            id INTEGER PRIMARY KEY, stream_id INTEGER NOT NULL, name TEXT NOT NULL, config BLOB NOT NULL,
            start_seq INTEGER NOT NULL
        )
        """,
        "CREATE INDEX queues_of_stream ON queues (stream_id, start_seq)",
        """
        CREATE TABLE segments (
            stream_id INTEGER NOT NULL, first_seq INTEGER NOT NULL, count INTEGER NOT NULL,
            size_bytes INTEGER NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (stream_id, first_seq)
        )
        """,
        # Serves totals without a visit to the payloads, and names the segments whose own page is damaged.
        "CREATE INDEX segment_sizes ON segments (stream_id, first_seq, count, size_bytes)",
        """
        CREATE TABLE acks (
            queue_id INTEGER NOT NULL, stream_id INTEGER NOT NULL, first_seq INTEGER NOT NULL, dead BLOB,
            dead_count INTEGER NOT NULL, dead_bytes INTEGER NOT NULL, PRIMARY KEY (queue_id, first_seq)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX acks_of_segment ON acks (stream_id, first_seq)",
        """
        CREATE TABLE deliveries (
            queue_id INTEGER NOT NULL, seq INTEGER NOT NULL, receive_count INTEGER NOT NULL,
            first_received_ms INTEGER NOT NULL, PRIMARY KEY (queue_id, seq)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE dedups (
            stream_id INTEGER NOT NULL, first_seq INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
            keys BLOB NOT NULL, PRIMARY KEY (stream_id, first_seq)
        )
        """,
        "CREATE INDEX dedups_by_expiry ON dedups (expires_ms)",
        """
        CREATE TABLE damaged (
            id INTEGER PRIMARY KEY, stream_id INTEGER NOT NULL, first_seq INTEGER NOT NULL,
            seq INTEGER NOT NULL, reason TEXT NOT NULL, payload BLOB NOT NULL, found_ms INTEGER NOT NULL
        )
        """,
        "PRAGMA user_version = 1",
    ),
    # One index of segments instead of two: a commit for many small streams writes a page of each for every stream.
    (
        """
        CREATE TABLE lean_segments (
            stream_id INTEGER NOT NULL, first_seq INTEGER NOT NULL, count INTEGER NOT NULL,
            size_bytes INTEGER NOT NULL, payload BLOB NOT NULL
        )
        """,
        "INSERT INTO lean_segments SELECT stream_id, first_seq, count, size_bytes, payload FROM segments",
        "DROP TABLE segments",
        "ALTER TABLE lean_segments RENAME TO segments",
        "CREATE INDEX segment_sizes ON segments (stream_id, first_seq, count, size_bytes)",
        "PRAGMA user_version = 2",
    ),
)

VERSION = len(_MIGRATIONS)
"""The version of the tables this code reads and writes."""


def migrate(connection: sqlite3.Connection, place: str) -> None:
    """Bring a database up to `VERSION`; FailedPrecondition when it is newer."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise FailedPrecondition(
            f"{place} has version {version}, this Penstock knows versions up to {VERSION}: upgrade Penstock"
        )
    for statements in _MIGRATIONS[version:]:
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")

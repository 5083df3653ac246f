"""The SQL of the SQLite store and the migrations of its tables."""

import sqlite3

from penstock.domain.errors import FailedPrecondition

PUT_STREAM = """
INSERT INTO streams (id, name, config, seq_limit) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, config = excluded.config,
    seq_limit = max(seq_limit, excluded.seq_limit)
"""
PUT_QUEUE = """
INSERT INTO queues (id, stream_id, name, config, start_seq) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET stream_id = excluded.stream_id, name = excluded.name, config = excluded.config,
    start_seq = max(start_seq, excluded.start_seq)
"""
RAISE_SEQ_LIMIT = "UPDATE streams SET seq_limit = max(seq_limit, ?) WHERE id = ?"
# Adds no row if there is a segment at this position: that would be a defect, and the caller counts the rows.
ADD_SEGMENT = """
INSERT INTO segments (stream_id, first_seq, count, size_bytes, payload) SELECT ?1, ?2, ?3, ?4, ?5
WHERE NOT EXISTS (SELECT 1 FROM segments WHERE stream_id = ?1 AND first_seq = ?2)
"""
PUT_DEDUP = """
INSERT INTO dedups (stream_id, first_seq, expires_ms, keys) VALUES (?, ?, ?, ?)
ON CONFLICT (stream_id, first_seq) DO UPDATE SET expires_ms = excluded.expires_ms, keys = excluded.keys
"""
PUT_DELIVERY = """
INSERT INTO deliveries (queue_id, seq, receive_count, first_received_ms, lease_id, leased_ms, deadline_ms)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (queue_id, seq) DO UPDATE SET receive_count = excluded.receive_count,
    first_received_ms = excluded.first_received_ms, lease_id = excluded.lease_id, leased_ms = excluded.leased_ms,
    deadline_ms = excluded.deadline_ms
"""
PUT_ACK = """
INSERT INTO acks (queue_id, stream_id, first_seq, dead, dead_count, dead_bytes) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue_id, first_seq) DO UPDATE SET dead = excluded.dead, dead_count = excluded.dead_count,
    dead_bytes = excluded.dead_bytes
"""
# Parameters: new queue, queue.
CLONE_ACKS = """
INSERT INTO acks (queue_id, stream_id, first_seq, dead, dead_count, dead_bytes)
SELECT ?, stream_id, first_seq, dead, dead_count, dead_bytes FROM acks WHERE queue_id = ?
"""
FORGET_DELIVERIES = "DELETE FROM deliveries WHERE queue_id = ? AND seq BETWEEN ? AND ?"
ADD_DAMAGED = """
INSERT INTO damaged (stream_id, first_seq, seq, reason, payload, found_ms) VALUES (?, ?, ?, ?, ?, ?)
"""

# Parameters of each: sequence, queue.
PURGE_QUEUE = (
    "UPDATE queues SET start_seq = max(start_seq, ?) WHERE id = ?",
    "DELETE FROM acks WHERE first_seq < ? AND queue_id = ?",
    "DELETE FROM deliveries WHERE seq < ? AND queue_id = ?",
)
PURGE_DEDUPS = ("DELETE FROM dedups WHERE stream_id = ? AND first_seq < ?",)
# Parameters of each: stream, first sequence.
DROP_SEGMENT = (
    "DELETE FROM segments WHERE stream_id = ? AND first_seq = ?",
    "DELETE FROM acks WHERE stream_id = ? AND first_seq = ?",
)
# Parameters of each: stream, number of segments.
SHRINK_STREAM = (
    """
    DELETE FROM acks WHERE stream_id = ?1 AND first_seq IN (
        SELECT first_seq FROM segments WHERE stream_id = ?1 ORDER BY first_seq LIMIT ?2
    )
    """,
    """
    DELETE FROM segments WHERE rowid IN (
        SELECT rowid FROM segments WHERE stream_id = ?1 ORDER BY first_seq LIMIT ?2
    )
    """,
)
DROP_QUEUE = (
    "DELETE FROM acks WHERE queue_id = ?",
    "DELETE FROM deliveries WHERE queue_id = ?",
    "DELETE FROM queues WHERE id = ?",
)
DROP_STREAM = (
    "DELETE FROM acks WHERE queue_id IN (SELECT id FROM queues WHERE stream_id = ?)",
    "DELETE FROM deliveries WHERE queue_id IN (SELECT id FROM queues WHERE stream_id = ?)",
    "DELETE FROM queues WHERE stream_id = ?",
    "DELETE FROM segments WHERE stream_id = ?",
    "DELETE FROM dedups WHERE stream_id = ?",
    "DELETE FROM streams WHERE id = ?",
)
COLLECT_STREAM = (
    """
    DELETE FROM segments WHERE stream_id = ? AND NOT EXISTS (
        SELECT 1 FROM queues AS q
        WHERE q.stream_id = segments.stream_id AND q.start_seq <= segments.first_seq AND NOT EXISTS (
            SELECT 1 FROM acks AS a
            WHERE a.queue_id = q.id AND a.first_seq = segments.first_seq AND a.dead IS NULL
        )
    )
    """,
    """
    DELETE FROM acks WHERE stream_id = ? AND NOT EXISTS (
        SELECT 1 FROM segments AS s WHERE s.stream_id = acks.stream_id AND s.first_seq = acks.first_seq
    )
    """,
)
FORGET_DEDUPS = "DELETE FROM dedups WHERE expires_ms <= ?"

STREAMS = "SELECT id, name, config, seq_limit FROM streams ORDER BY id"
QUEUES = "SELECT id, stream_id, name, config, start_seq FROM queues ORDER BY id"
SHARED_STREAMS = "SELECT stream_id FROM queues GROUP BY stream_id HAVING count(*) >= 2"
# The first condition saves streams with one queue, the usual kind, a scan of their segments.
SHARES = """
SELECT s.first_seq, count(*)
FROM segments AS s CROSS JOIN queues AS q ON q.stream_id = s.stream_id AND q.start_seq <= s.first_seq
WHERE s.stream_id = ?
  AND (SELECT count(*) FROM queues WHERE stream_id = ?) >= 2
  AND NOT EXISTS (
    SELECT 1 FROM acks AS a WHERE a.queue_id = q.id AND a.first_seq = s.first_seq AND a.dead IS NULL
  )
GROUP BY s.first_seq HAVING count(*) >= 2
"""
# CROSS JOIN fixes the order of the loops: segments in order, then a look-up of each one's ack.
TOTALS = """
SELECT coalesce(sum(s.count - coalesce(a.dead_count, 0)), 0),
       coalesce(sum(s.size_bytes - coalesce(a.dead_bytes, 0)), 0)
FROM queues AS q
CROSS JOIN segments AS s ON s.stream_id = q.stream_id AND s.first_seq >= q.start_seq
LEFT JOIN acks AS a ON a.queue_id = q.id AND a.first_seq = s.first_seq
WHERE q.id = ? AND (a.queue_id IS NULL OR a.dead IS NOT NULL)
"""
# The cast keeps a payload with a damaged type readable as bytes, so that the codec rejects it.
READ = """
SELECT s.first_seq, s.count, s.size_bytes, coalesce(CAST(s.payload AS BLOB), x''), a.dead
FROM queues AS q
CROSS JOIN segments AS s ON s.stream_id = q.stream_id AND s.first_seq >= max(q.start_seq, ?)
LEFT JOIN acks AS a ON a.queue_id = q.id AND a.first_seq = s.first_seq
WHERE q.id = ? AND (a.queue_id IS NULL OR a.dead IS NOT NULL)
ORDER BY s.first_seq
"""
# Answered from an index alone, so it works despite damage to the pages of the table.
PLACES = """
SELECT s.stream_id, s.first_seq, s.count, s.size_bytes
FROM queues AS q
CROSS JOIN segments AS s ON s.stream_id = q.stream_id AND s.first_seq >= max(q.start_seq, ?)
WHERE q.id = ?
ORDER BY s.first_seq
"""
PAYLOAD = "SELECT CAST(payload AS BLOB) FROM segments WHERE stream_id = ? AND first_seq = ?"
DEAD = "SELECT dead FROM acks WHERE queue_id = ? AND first_seq = ?"
DELIVERIES = """
SELECT queue_id, seq, receive_count, first_received_ms, lease_id, leased_ms, deadline_ms FROM deliveries
WHERE queue_id = ? AND seq BETWEEN ? AND ? ORDER BY seq
"""
LAST_LEASES = "SELECT queue_id, max(seq) FROM deliveries WHERE deadline_ms > ? GROUP BY queue_id"
DEDUPS = """
SELECT stream_id, first_seq, expires_ms, keys FROM dedups WHERE expires_ms > ? ORDER BY stream_id, first_seq
"""
DAMAGED = "SELECT stream_id, first_seq, seq, reason, payload, found_ms FROM damaged ORDER BY id"


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
        # Serves totals without reading payloads, and lists segments whose page is damaged.
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
    # One index of segments instead of two: a commit for many small streams writes a page of each index per stream.
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
    # Leases that a planned stop leaves to the next process.
    (
        "ALTER TABLE deliveries ADD COLUMN lease_id INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE deliveries ADD COLUMN leased_ms INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE deliveries ADD COLUMN deadline_ms INTEGER NOT NULL DEFAULT 0",
        "PRAGMA user_version = 3",
    ),
)

VERSION = len(_MIGRATIONS)
"""The version of the tables this code reads and writes."""


def migrate(connection: sqlite3.Connection, place: str) -> None:
    """Migrate a database to `VERSION`; raise FailedPrecondition if it is newer."""
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

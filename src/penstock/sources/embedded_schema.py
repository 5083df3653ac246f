"""The tables of the embedded queue, and how a process connects to them."""

import sqlite3

# `due_ms` is set for the message of a group whose turn it is, and says from when on; the others of the group have none.
# So the index of what is due has one row a group, however long the group's queue. A message without a group is its own.
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
_SETTINGS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA secure_delete = OFF")
_BUSY_TIMEOUT_S = 10.0


def connect(path: str) -> sqlite3.Connection:
    """A connection to the database at `path`, whose tables are there; sqlite3.Error if that cannot be."""
    # One thread at a time uses it, but it is opened and closed by whichever.
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

"""The SQL of the PostgreSQL store and the migrations of its tables; the schema is the connection's search path."""

from typing import Any

from psycopg import Connection, sql

from penstock.domain.errors import FailedPrecondition

PUT_STREAM = """
INSERT INTO streams AS s (id, name, config, seq_limit) VALUES (%s, %s, %b, %s)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, config = excluded.config,
    seq_limit = greatest(s.seq_limit, excluded.seq_limit)
"""
PUT_QUEUE = """
INSERT INTO queues AS q (id, stream_id, name, config, start_seq) VALUES (%s, %s, %s, %b, %s)
ON CONFLICT (id) DO UPDATE SET stream_id = excluded.stream_id, name = excluded.name, config = excluded.config,
    start_seq = greatest(q.start_seq, excluded.start_seq)
"""
RAISE_SEQ_LIMITS = """
UPDATE streams AS s SET seq_limit = greatest(s.seq_limit, new.seq_limit)
FROM unnest(%b::bigint[], %b::bigint[]) AS new (id, seq_limit) WHERE s.id = new.id
"""
ADD_SEGMENT = """
INSERT INTO segments (stream_id, first_seq, count, size_bytes, payload) VALUES (%s, %s, %s, %s, %b)
"""
COPY_SEGMENTS = """
COPY segments (stream_id, first_seq, count, size_bytes, payload) FROM STDIN (FORMAT BINARY)
"""
COPY_SEGMENTS_TYPES = ("int8", "int8", "int8", "int8", "bytea")
PUT_DEDUP = """
INSERT INTO dedups (stream_id, first_seq, expires_ms, keys) VALUES (%s, %s, %s, %b)
ON CONFLICT (stream_id, first_seq) DO UPDATE SET expires_ms = excluded.expires_ms, keys = excluded.keys
"""
PUT_DELIVERIES = """
INSERT INTO deliveries (queue_id, seq, receive_count, first_received_ms, lease_id, leased_ms, deadline_ms)
SELECT * FROM unnest(
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]
)
ON CONFLICT (queue_id, seq) DO UPDATE SET receive_count = excluded.receive_count,
    first_received_ms = excluded.first_received_ms, lease_id = excluded.lease_id, leased_ms = excluded.leased_ms,
    deadline_ms = excluded.deadline_ms
"""
PUT_ACKS = """
INSERT INTO acks (queue_id, stream_id, first_seq, dead, dead_count, dead_bytes)
SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bigint[], %b::bigint[])
ON CONFLICT (queue_id, first_seq) DO UPDATE SET dead = excluded.dead, dead_count = excluded.dead_count,
    dead_bytes = excluded.dead_bytes
"""
# Parameters: new queue, queue.
CLONE_ACKS = """
INSERT INTO acks (queue_id, stream_id, first_seq, dead, dead_count, dead_bytes)
SELECT %s, stream_id, first_seq, dead, dead_count, dead_bytes FROM acks WHERE queue_id = %s
"""
FORGET_DELIVERIES = """
DELETE FROM deliveries AS d
USING unnest(%b::bigint[], %b::bigint[], %b::bigint[]) AS gone (queue_id, first_seq, last_seq)
WHERE d.queue_id = gone.queue_id AND d.seq BETWEEN gone.first_seq AND gone.last_seq
"""
ADD_DAMAGED = """
INSERT INTO damaged (stream_id, first_seq, seq, reason, payload, found_ms) VALUES (%s, %s, %s, %s, %b, %s)
"""

# Parameters of each: sequence, queue.
PURGE_QUEUE = (
    "UPDATE queues SET start_seq = greatest(start_seq, %s) WHERE id = %s",
    "DELETE FROM acks WHERE first_seq < %s AND queue_id = %s",
    "DELETE FROM deliveries WHERE seq < %s AND queue_id = %s",
)
PURGE_DEDUPS = "DELETE FROM dedups WHERE stream_id = %s AND first_seq < %s"
# Parameters of each: streams, first sequences.
DROP_SEGMENTS = (
    """
    DELETE FROM segments AS s USING unnest(%b::bigint[], %b::bigint[]) AS gone (stream_id, first_seq)
    WHERE s.stream_id = gone.stream_id AND s.first_seq = gone.first_seq
    """,
    """
    DELETE FROM acks AS a USING unnest(%b::bigint[], %b::bigint[]) AS gone (stream_id, first_seq)
    WHERE a.stream_id = gone.stream_id AND a.first_seq = gone.first_seq
    """,
)
SHRINK_STREAM = (
    """
    WITH oldest AS (
        SELECT stream_id, first_seq FROM segments WHERE stream_id = %(stream_id)s ORDER BY first_seq LIMIT %(segments)s
    )
    DELETE FROM acks AS a USING oldest AS o WHERE a.stream_id = o.stream_id AND a.first_seq = o.first_seq
    """,
    """
    WITH oldest AS (
        SELECT stream_id, first_seq FROM segments WHERE stream_id = %(stream_id)s ORDER BY first_seq LIMIT %(segments)s
    )
    DELETE FROM segments AS s USING oldest AS o WHERE s.stream_id = o.stream_id AND s.first_seq = o.first_seq
    """,
)
DROP_QUEUE = (
    "DELETE FROM acks WHERE queue_id = %s",
    "DELETE FROM deliveries WHERE queue_id = %s",
    "DELETE FROM queues WHERE id = %s",
)
DROP_STREAM = (
    "DELETE FROM acks WHERE queue_id IN (SELECT id FROM queues WHERE stream_id = %s)",
    "DELETE FROM deliveries WHERE queue_id IN (SELECT id FROM queues WHERE stream_id = %s)",
    "DELETE FROM queues WHERE stream_id = %s",
    "DELETE FROM segments WHERE stream_id = %s",
    "DELETE FROM dedups WHERE stream_id = %s",
    "DELETE FROM streams WHERE id = %s",
)
COLLECT_STREAM = (
    """
    DELETE FROM segments AS s WHERE s.stream_id = %s AND NOT EXISTS (
        SELECT 1 FROM queues AS q
        WHERE q.stream_id = s.stream_id AND q.start_seq <= s.first_seq AND NOT EXISTS (
            SELECT 1 FROM acks AS a
            WHERE a.queue_id = q.id AND a.first_seq = s.first_seq AND a.dead IS NULL
        )
    )
    """,
    """
    DELETE FROM acks AS a WHERE a.stream_id = %s AND NOT EXISTS (
        SELECT 1 FROM segments AS s WHERE s.stream_id = a.stream_id AND s.first_seq = a.first_seq
    )
    """,
)
FORGET_DEDUPS = "DELETE FROM dedups WHERE expires_ms <= %s"

STREAMS = "SELECT id, name, config, seq_limit FROM streams ORDER BY id"
QUEUES = "SELECT id, stream_id, name, config, start_seq FROM queues ORDER BY id"
SHARED_STREAMS = "SELECT stream_id FROM queues GROUP BY stream_id HAVING count(*) >= 2"
# The first condition saves streams with one queue, the usual kind, a scan of their segments.
SHARES = """
SELECT s.first_seq, count(*)
FROM segments AS s JOIN queues AS q ON q.stream_id = s.stream_id AND q.start_seq <= s.first_seq
WHERE (SELECT count(*) FROM queues WHERE stream_id = %(stream_id)s) >= 2
  AND s.stream_id = %(stream_id)s
  AND NOT EXISTS (
    SELECT 1 FROM acks AS a WHERE a.queue_id = q.id AND a.first_seq = s.first_seq AND a.dead IS NULL
  )
GROUP BY s.first_seq HAVING count(*) >= 2
"""
TOTALS = """
SELECT coalesce(sum(s.count - coalesce(a.dead_count, 0)), 0)::bigint,
       coalesce(sum(s.size_bytes - coalesce(a.dead_bytes, 0)), 0)::bigint
FROM queues AS q
JOIN segments AS s ON s.stream_id = q.stream_id AND s.first_seq >= q.start_seq
LEFT JOIN acks AS a ON a.queue_id = q.id AND a.first_seq = s.first_seq
WHERE q.id = %s AND (a.queue_id IS NULL OR a.dead IS NOT NULL)
"""
# Walks the index from segment to segment until a limit is reached, whatever the planner estimates: each LIMIT 1 reads
# one row of an index, and OFFSET 0 prevents a join with all acks.
READ = """
WITH RECURSIVE walk AS (
    (
        SELECT s.first_seq, s.count, s.size_bytes, s.payload, a.dead,
               s.count AS messages, s.size_bytes AS bytes
        FROM segments AS s LEFT JOIN LATERAL (
            SELECT queue_id, dead FROM acks WHERE queue_id = %(queue_id)s AND first_seq = s.first_seq OFFSET 0
        ) AS a ON true
        WHERE s.stream_id = (SELECT stream_id FROM queues WHERE id = %(queue_id)s)
          AND s.first_seq >= greatest(%(from_seq)s, (SELECT start_seq FROM queues WHERE id = %(queue_id)s))
          AND (a.queue_id IS NULL OR a.dead IS NOT NULL)
        ORDER BY s.first_seq LIMIT 1
    )
    UNION ALL
    SELECT next.first_seq, next.count, next.size_bytes, next.payload, next.dead,
           walk.messages + next.count, walk.bytes + next.size_bytes
    FROM walk CROSS JOIN LATERAL (
        SELECT s.first_seq, s.count, s.size_bytes, s.payload, a.dead
        FROM segments AS s LEFT JOIN LATERAL (
            SELECT queue_id, dead FROM acks WHERE queue_id = %(queue_id)s AND first_seq = s.first_seq OFFSET 0
        ) AS a ON true
        WHERE s.stream_id = (SELECT stream_id FROM queues WHERE id = %(queue_id)s)
          AND s.first_seq > walk.first_seq
          AND (a.queue_id IS NULL OR a.dead IS NOT NULL)
        ORDER BY s.first_seq LIMIT 1
    ) AS next
    WHERE walk.messages < %(max_messages)s AND walk.bytes < %(max_bytes)s
)
SELECT first_seq, count, size_bytes, payload, dead FROM walk ORDER BY first_seq
"""
DELIVERIES = """
SELECT queue_id, seq, receive_count, first_received_ms, lease_id, leased_ms, deadline_ms FROM deliveries
WHERE queue_id = %s AND seq BETWEEN %s AND %s ORDER BY seq
"""
LAST_LEASES = "SELECT queue_id, max(seq) FROM deliveries WHERE deadline_ms > %s GROUP BY queue_id"
DEDUPS = """
SELECT stream_id, first_seq, expires_ms, keys FROM dedups WHERE expires_ms > %s ORDER BY stream_id, first_seq
"""
DAMAGED = "SELECT stream_id, first_seq, seq, reason, payload, found_ms FROM damaged ORDER BY id"


# Each migration ends by recording its version. A released one is never edited.
_MIGRATIONS = (
    """
    CREATE TABLE streams (
        id bigint PRIMARY KEY, name text NOT NULL, config bytea NOT NULL, seq_limit bigint NOT NULL
    );
    CREATE TABLE queues (
        id bigint PRIMARY KEY, stream_id bigint NOT NULL, name text NOT NULL, config bytea NOT NULL,
        start_seq bigint NOT NULL
    );
    CREATE INDEX queues_of_stream ON queues (stream_id, start_seq);
    CREATE TABLE segments (
        stream_id bigint NOT NULL, first_seq bigint NOT NULL, count bigint NOT NULL, size_bytes bigint NOT NULL,
        payload bytea NOT NULL, PRIMARY KEY (stream_id, first_seq)
    );
    -- Messages pass through once; the time to compress them is worth more than the space.
    ALTER TABLE segments ALTER COLUMN payload SET STORAGE EXTERNAL;
    CREATE TABLE acks (
        queue_id bigint NOT NULL, stream_id bigint NOT NULL, first_seq bigint NOT NULL, dead bytea,
        dead_count bigint NOT NULL, dead_bytes bigint NOT NULL, PRIMARY KEY (queue_id, first_seq)
    ) WITH (fillfactor = 70);
    CREATE INDEX acks_of_segment ON acks (stream_id, first_seq);
    CREATE TABLE deliveries (
        queue_id bigint NOT NULL, seq bigint NOT NULL, receive_count bigint NOT NULL,
        first_received_ms bigint NOT NULL, PRIMARY KEY (queue_id, seq)
    );
    CREATE TABLE dedups (
        stream_id bigint NOT NULL, first_seq bigint NOT NULL, expires_ms bigint NOT NULL, keys bytea NOT NULL,
        PRIMARY KEY (stream_id, first_seq)
    );
    CREATE INDEX dedups_by_expiry ON dedups (expires_ms);
    CREATE TABLE damaged (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, stream_id bigint NOT NULL,
        first_seq bigint NOT NULL, seq bigint NOT NULL, reason text NOT NULL, payload bytea NOT NULL,
        found_ms bigint NOT NULL
    );
    CREATE TABLE owners (
        epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, commits bigint NOT NULL
    );
    UPDATE schema_version SET version = 1;
    """,
    """
    ALTER TABLE owners ADD COLUMN expires timestamptz NOT NULL DEFAULT '-infinity';
    ALTER TABLE owners ADD COLUMN deposed boolean NOT NULL DEFAULT false;
    UPDATE schema_version SET version = 2;
    """,
    # Leases that a planned stop leaves to the next process.
    """
    ALTER TABLE deliveries ADD COLUMN lease_id bigint NOT NULL DEFAULT 0;
    ALTER TABLE deliveries ADD COLUMN leased_ms bigint NOT NULL DEFAULT 0;
    ALTER TABLE deliveries ADD COLUMN deadline_ms bigint NOT NULL DEFAULT 0;
    UPDATE schema_version SET version = 3;
    """,
)

VERSION = len(_MIGRATIONS)
"""The version of the tables this code reads and writes."""

_SCHEMA_EXISTS = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_CREATE_SCHEMA = sql.SQL("CREATE SCHEMA {}")
_VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)"
_FIRST_VERSION = "INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version)"
_READ_VERSION = "SELECT version FROM schema_version"


def migrate(connection: Connection[Any], schema: str) -> None:
    """Migrate a schema to `VERSION`; raise FailedPrecondition if it is newer. The caller owns the schema's lock."""
    with connection.transaction():
        # Only if it is missing: "IF NOT EXISTS" needs the right to create schemas even if it exists.
        if connection.execute(_SCHEMA_EXISTS, (schema,)).fetchone() is None:
            connection.execute(_CREATE_SCHEMA.format(sql.Identifier(schema)))
        connection.execute(_VERSION_TABLE)
        connection.execute(_FIRST_VERSION)
        ((version,),) = connection.execute(_READ_VERSION).fetchall()
        if version > VERSION:
            raise FailedPrecondition(
                f"schema {schema} has version {version}, this Penstock knows versions up to {VERSION}: upgrade Penstock"
            )
        for text in _MIGRATIONS[version:]:
            connection.execute(text)

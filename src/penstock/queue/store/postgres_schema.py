"""The tables of the PostgreSQL store, and how a schema of an older version becomes one of this version."""

from typing import Any

from psycopg import Connection, sql

from penstock.core.errors import FailedPrecondition

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
)

VERSION = len(_MIGRATIONS)
"""The version of the tables this code reads and writes."""

_SCHEMA_EXISTS = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_CREATE_SCHEMA = sql.SQL("CREATE SCHEMA {}")
_VERSION_TABLE = "CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)"
_FIRST_VERSION = "INSERT INTO schema_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM schema_version)"
_READ_VERSION = "SELECT version FROM schema_version"


def migrate(connection: Connection[Any], schema: str) -> None:
    """Bring a schema up to `VERSION`; FailedPrecondition when it is newer. The caller owns the schema's lock."""
    with connection.transaction():
        # Only when it is missing: "IF NOT EXISTS" asks for the right to create schemas even when it is there.
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

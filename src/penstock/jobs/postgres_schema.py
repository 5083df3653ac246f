"""How a schema of PostgreSQL gets the tables of jobs; safe when several nodes start at once."""

from hashlib import blake2b

from psycopg import sql

from penstock.engine.store.postgres_address import Session
from penstock.jobs.migration import Applied, migrations, missing
from penstock.jobs.postgres_positions import keep_positions_growing
from penstock.jobs.queries import Dialect

_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_SCHEMA_EXISTS = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_CREATE_SCHEMA = sql.SQL("CREATE SCHEMA {}")
_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    version bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, works_with bigint NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_APPLIED = "SELECT version, name, checksum, works_with FROM migrations ORDER BY version"
_RECORD = "INSERT INTO migrations (version, name, checksum, works_with) VALUES (%s, %s, %s, %s)"


def lock_key(schema: str) -> int:
    """The advisory lock of changes to a schema's tables."""
    return int.from_bytes(blake2b(f"penstock jobs: {schema}".encode(), digest_size=8).digest(), "big", signed=True)


def migrate(session: Session, schema: str) -> None:
    """Bring a schema up to date; one node at a time, all steps or none."""
    with session.transaction():
        session.execute(_LOCK, (lock_key(schema),))
        # Only when it is missing: "IF NOT EXISTS" asks for the right to create schemas even when it is there.
        if session.execute(_SCHEMA_EXISTS, (schema,)).fetchone() is None:
            session.execute(_CREATE_SCHEMA.format(sql.Identifier(schema)))
        session.execute(_MIGRATIONS_TABLE)
        applied = [Applied(*row) for row in session.execute(_APPLIED)]
        for step in missing(migrations(Dialect.POSTGRES), applied):
            session.execute(step.text)
            session.execute(_RECORD, (step.version, step.name, step.checksum, step.works_with))
        keep_positions_growing(session)

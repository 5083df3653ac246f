"""The tables of jobs in a schema of PostgreSQL: migrations, positions, partitions by month.

Several nodes may start at once: an advisory lock lets one migrate at a time.

Positions keep growing on whatever server the tables are: a restored dump, a new server, a promoted standby. A position
is a base plus the number of the transaction that wrote the row (migration 0002). Another server counts its transactions
from the start again, and readers that are past those numbers would never see its rows. So on another server the base
becomes larger than all positions that any server gave before: it has the hour in its upper bits.

Attempts and archived jobs are partitioned by month.
"""

from hashlib import blake2b

import psycopg
from psycopg import sql

from penstock.engine.store.postgres_address import Session
from penstock.events.store.migrations import Applied, migrations, missing
from penstock.events.store.repository.archive import Month
from penstock.events.store.statements import Dialect, queries

_POSITIONED = ("events", "attempts")
# How many transactions one server may count: 14 years at 10,000 a second.
_COUNTER_BITS = 42
_FIRST_HOUR = 438_288
"""Of the year 2020, since 1970: so that hours fit in what the counter leaves of 63 bits for two centuries."""
_MAY_ASK = """
SELECT has_function_privilege('pg_control_system()', 'execute')
   AND has_function_privilege('pg_control_checkpoint()', 'execute')
"""
_SERVER = "SELECT system_identifier || '/' || timeline_id FROM pg_control_system(), pg_control_checkpoint()"
_STATE = "SELECT base, server, floor(extract(epoch FROM clock_timestamp()) / 3600)::bigint FROM position_base"
_SET_DEFAULT = sql.SQL(
    "ALTER TABLE {} ALTER COLUMN position SET DEFAULT {}::bigint + pg_current_xact_id()::text::bigint"
)
_RECORD_BASE = "UPDATE position_base SET base = %s, server = %s"


def keep_positions_growing(session: Session) -> None:
    """Begin a new base if this is not the server that the last one was for; in the transaction of the migrations."""
    ((base, known, hour),) = session.execute(_STATE).fetchall()
    server = _server(session)
    if server == known:
        return
    base = max(hour - _FIRST_HOUR, (base >> _COUNTER_BITS) + 1) << _COUNTER_BITS
    for table in _POSITIONED:
        session.execute(_SET_DEFAULT.format(sql.Identifier(table), sql.Literal(base)))
    session.execute(_RECORD_BASE, (base, server))


def _server(session: Session) -> str:
    """Return which server this is; if that may not be asked, it counts as always the same one."""
    ((may_ask,),) = session.execute(_MAY_ASK).fetchall()
    return str(session.execute(_SERVER).fetchall()[0][0]) if may_ask else "unknown"


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
    """Return the key of the advisory lock for changes to a schema's tables."""
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


_MONTHLY = ("attempts", "archived_jobs")
_QUERIES = queries(Dialect.POSTGRES)
_CREATE = sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})")
_DROP = sql.SQL("DROP TABLE IF EXISTS {}")


def make_months(session: Session, now_ms: int) -> None:
    """Create the partitions of this month and the next."""
    this = Month.of(now_ms)
    for table in _MONTHLY:
        there = set(_partitions(session, table))
        for month in (this, this.next):
            if f"{table}_{month.suffix}" not in there:
                _make(session, table, month)


def _make(session: Session, table: str, month: Month) -> None:
    bounds = (sql.Literal(month.start_ms), sql.Literal(month.next.start_ms))
    statement = _CREATE.format(sql.Identifier(f"{table}_{month.suffix}"), sql.Identifier(table), *bounds)
    try:
        session.execute(statement)
    except (psycopg.errors.CheckViolation, psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
        # Rows of this month are in the partition of all other months already, or another node was quicker.
        return


def drop_months(session: Session, before_ms: int) -> None:
    """Drop the partitions of months that ended before, and such rows of the partition of all other months."""
    for table in _MONTHLY:
        for name in _partitions(session, table):
            month = Month.of_suffix(name)
            if month is not None and month.next.start_ms <= before_ms:
                session.execute(_DROP.format(sql.Identifier(name)))
    for name in ("delete_old_archive", "delete_old_attempts"):
        session.execute(_QUERIES[name], {"before_ms": before_ms})


def _partitions(session: Session, table: str) -> list[str]:
    return [name for (name,) in session.execute(_QUERIES["partitions"], {"table": table})]

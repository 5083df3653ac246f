"""Positions keep growing on whatever server the tables are: a restored dump, a new server, a promoted standby.

A position is a base plus the number of the transaction that wrote the row (migration 0002). Another server counts its
transactions anew, and readers that are past those numbers would never see its rows. So on another server the base
becomes larger than all positions that any server gave before: it has the hour in its upper bits.
"""

from psycopg import sql

from penstock.engine.store.postgres_address import Session

_POSITIONED = ("events", "attempts")
# So many transactions one server may count: 14 years at 10,000 a second.
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
    """Which server this is, if that may be asked: else it is taken for the same one always."""
    ((may_ask,),) = session.execute(_MAY_ASK).fetchall()
    return str(session.execute(_SERVER).fetchall()[0][0]) if may_ask else "unknown"

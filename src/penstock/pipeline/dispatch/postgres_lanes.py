"""Lanes read from PostgreSQL as Arrow: ADBC reads them by COPY in its binary format."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow
from adbc_driver_manager import Error
from adbc_driver_postgresql import dbapi
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.engine.store.postgres_address import PostgresAddress
from penstock.jobs.errors import DatabaseFailed
from penstock.jobs.lane_claiming import AwakeRange
from penstock.jobs.stored_state import MODE_OF
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.lane_query import lane_query
from penstock.pipeline.dispatch.round_call import RoundCall

_CONNECTION: dict[str, Any] = {
    "application_name": "penstock-dispatch",
    "connect_timeout": 10,
    "keepalives_idle": 15,
    # To compile a read costs more than it takes.
    "options": "-c jit=off",
}
# Named here and not by the database, which would write them out job by job.
_MODE_NAMES = pyarrow.array([mode.value for mode in MODE_OF])

# For the next round: ADBC asks for all types of the database first, which takes longer than to read a small one.
_kept: dict[Database, dbapi.Connection] = {}


def postgres_lanes(database: Database, span: AwakeRange, call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    """What the first lanes of a range may give, lane by lane; in a process that does one such thing at a time."""
    prefix = sql.Identifier(database.schema).as_string(None) + "."
    try:
        connection, cursor = _asked(database, lane_query(prefix, span, call))
        try:
            with closing(cursor), closing(cursor.fetch_record_batch()) as reader:
                for batch in reader:
                    place = batch.schema.get_field_index("mode")
                    yield batch.set_column(place, "mode", _MODE_NAMES.take(batch.column(place)))
        except BaseException:
            # In the middle of an answer: of no use to anybody else.
            connection.close()
            raise
        _kept[database] = connection
    except Error as error:
        address = PostgresAddress(database.url)
        raise DatabaseFailed(f"{address} cannot be read: {address.explain(error)}") from None


def _asked(database: Database, text: str) -> tuple[dbapi.Connection, dbapi.Cursor]:
    """A connection, and a cursor that has the answer. One that was kept may be lost by now: then it is made anew."""
    kept = _kept.pop(database, None)
    if kept is not None:
        try:
            return kept, _executed(kept, text)
        except Error:
            kept.close()
    fresh = dbapi.connect(make_conninfo(database.url, **_CONNECTION), autocommit=True)
    try:
        return fresh, _executed(fresh, text)
    except BaseException:
        fresh.close()
        raise


def _executed(connection: dbapi.Connection, text: str) -> dbapi.Cursor:
    cursor = connection.cursor()
    try:
        cursor.execute(text)
    except BaseException:
        cursor.close()
        raise
    return cursor

"""Lanes read from PostgreSQL as Arrow: ADBC reads them by COPY in its binary format."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow
from adbc_driver_manager import Error
from adbc_driver_postgresql import dbapi
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.jobs.errors import DatabaseFailed
from penstock.jobs.lane_claiming import AwakeRange
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.lane_query import lane_query
from penstock.queue.store.postgres_address import PostgresAddress

_CONNECTION: dict[str, Any] = {
    "application_name": "penstock-dispatch",
    "connect_timeout": 10,
    "keepalives_idle": 15,
    # To compile a read costs more than it takes.
    "options": "-c jit=off",
}


def postgres_lanes(
    database: Database, span: AwakeRange, owner: str, share: int, now_ms: int
) -> Iterator[pyarrow.RecordBatch]:
    """All that a range of lanes may give."""
    prefix = sql.Identifier(database.schema).as_string(None) + "."
    try:
        with (
            closing(dbapi.connect(make_conninfo(database.url, **_CONNECTION))) as connection,
            closing(connection.cursor()) as cursor,
        ):
            cursor.execute(lane_query(prefix, span, owner, share, now_ms))
            with closing(cursor.fetch_record_batch()) as reader:
                yield from reader
    except Error as error:
        address = PostgresAddress(database.url)
        raise DatabaseFailed(f"{address} cannot be read: {address.explain(error)}") from None

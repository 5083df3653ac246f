"""The jobs of the lanes whose turn it is, read and planned in parallel ranges of turns; reading changes nothing.

Lanes read from SQLite: each is asked for by itself, which costs no round trip and stops where the share does.

Lanes read from PostgreSQL as Arrow: ADBC reads them by COPY in its binary format.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pyarrow
from adbc_driver_manager import Error
from adbc_driver_postgresql import dbapi
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.domain.order import LaneKey
from penstock.engine.store.postgres_address import PostgresAddress
from penstock.events.dispatch.spark_messages import PACKED, RoundCall, announced, packed
from penstock.events.dispatch.spark_plan import LANE_JOBS, first_lanes, hashes_of, planned, whole_lanes
from penstock.events.dispatch.spark_task import COLUMNS
from penstock.events.errors import DatabaseFailed
from penstock.events.store import MODE_OF, AwakeRange, Dialect, LaneContent, LaneJob, queries
from penstock.events.store.sqlite import SqliteTransaction
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.statements import literal
from penstock.spark.workers import spare_collections

_NO_BLOCKER = (None, None, None)
_NO_JOB = (None,) * len(LaneJob._fields)
_BUSY_TIMEOUT_S = 10.0

Row = tuple[Any, ...]


def lane_rows(database: SparkDatabase, span: AwakeRange, call: RoundCall) -> Iterator[Row]:
    """What the first lanes of a range may give, in the columns of LANE_JOBS; the last may be one too many."""
    with closing(_connect(database)) as connection:
        tx = SqliteTransaction(connection)
        # One transaction: a lane and its jobs are seen at the same moment.
        connection.execute("BEGIN")
        count = 0
        bounds = {"first": span.first_turn, "last": span.last_turn, "owner": call.owner.name}
        for group_key, ordered, turn, paused in tx.all("lanes_in_turns", **bounds):
            lane = LaneKey(group_key, bool(ordered))
            (content,) = tx.first_jobs([lane], call.now_ms, call.share)
            rows = _rows_of_lane((*lane, turn, bool(paused)), content)
            yield from rows
            count += len(rows)
            if count > call.rows:
                return


def _connect(database: SparkDatabase) -> sqlite3.Connection:
    return sqlite3.connect(f"{database.path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)


def _rows_of_lane(lane: Row, content: LaneContent) -> list[Row]:
    before = (*lane, *(content.blocker or _NO_BLOCKER))
    return [(*before, job.id, job.mode.value, *job[2:]) for job in content.jobs] or [(*before, *_NO_JOB)]


_CONNECTION: dict[str, Any] = {
    "application_name": "penstock-dispatch",
    "connect_timeout": 10,
    "keepalives_idle": 15,
    # To compile a read costs more than it takes.
    "options": "-c jit=off",
}
_LANES_WITH_JOBS = queries(Dialect.POSTGRES)["lanes_with_jobs"]
# Named here and not by the database, which would write them out job by job.
_MODE_NAMES = pyarrow.array([mode.value for mode in MODE_OF])

# For the next round: ADBC asks for all types of the database first, which takes longer than to read a small one.
_kept: dict[SparkDatabase, dbapi.Connection] = {}


def postgres_lanes(database: SparkDatabase, span: AwakeRange, call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    """What the first lanes of a range may give, lane by lane; in a process that does one such thing at a time."""
    try:
        connection, cursor = _asked(database, lane_query(span, call))
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


def lane_query(span: AwakeRange, call: RoundCall) -> str:
    """The statement `lanes_with_jobs` with its values written in, as COPY takes none; it reads one row too many."""
    values = {
        "first": span.first_turn,
        "last": span.last_turn,
        "owner": call.owner.name,
        "now_ms": call.now_ms,
        "share": call.share,
        "rows": call.rows + 1,
    }
    return _LANES_WITH_JOBS % {name: literal(value, Dialect.POSTGRES) for name, value in values.items()}


def _asked(database: SparkDatabase, text: str) -> tuple[dbapi.Connection, dbapi.Cursor]:
    """A connection, and a cursor that has the answer. One that was kept may be lost by now: then it is made anew."""
    kept = _kept.pop(database, None)
    if kept is not None:
        try:
            return kept, _executed(kept, text)
        except Error:
            kept.close()
    fresh = dbapi.connect(make_conninfo(database.url, **_CONNECTION), autocommit=True)
    try:
        _executed(fresh, f"SET search_path TO {sql.Identifier(database.schema).as_string(None)}").close()
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


_ROWS_AT_ONCE = 10_000


def packed_plans(spark: SparkSession, database: SparkDatabase, parts: int, tasks: int) -> DataFrame:
    """What the announced round publishes, packed for so many tasks; so many parts of it are read at once."""

    def read(numbers: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        call = announced()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in planned_lanes(database, call.ranges[number::parts], call):
                    yield packed(rows, hashes_of(rows.column("group_key")), tasks)
        spare_collections("reading lanes")

    return spark.range(0, parts, 1, parts).mapInArrow(read, PACKED)


def planned_lanes(
    database: SparkDatabase, spans: Iterable[AwakeRange], call: RoundCall
) -> Iterator[pyarrow.RecordBatch]:
    """The first lanes of ranges, each lane with at most `share` jobs that go, in order; in the process of a task."""
    for span in spans:
        for rows in first_lanes(whole_lanes(_stored(database, span, call)), call.rows):
            yield planned(rows, call.share).select(COLUMNS)


def _stored(database: SparkDatabase, span: AwakeRange, call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    if database.dialect is Dialect.POSTGRES:
        yield from postgres_lanes(database, span, call)
        return
    fields = to_arrow_schema(LANE_JOBS)
    rows = lane_rows(database, span, call)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = zip(zip(*some, strict=True), fields, strict=True)
        arrays = [pyarrow.array(values, field.type) for values, field in columns]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])

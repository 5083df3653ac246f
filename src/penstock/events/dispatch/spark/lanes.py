"""Reads the jobs of the lanes whose turn it is, in parallel ranges of turns. DatabaseReader changes nothing."""

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
from penstock.events.dispatch.spark.messages import PACKED, RoundSpec, announced, packed
from penstock.events.dispatch.spark.plan import LANE_JOBS, first_lanes, hashes_of, planned, whole_lanes
from penstock.events.dispatch.spark.task import COLUMNS
from penstock.events.errors import DatabaseFailed
from penstock.events.store import MODE_OF, AwakeRange, Dialect, LaneContent, LaneJob, LaneQuestion, queries
from penstock.events.store.sqlite.transaction import SqliteTransaction
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.statements import literal
from penstock.spark.workers import freeze_long_lived_objects

_NO_BLOCKER = (None, None, None)
_NO_JOB = (None,) * len(LaneJob._fields)
_BUSY_TIMEOUT_S = 10.0
_ROWS_AT_ONCE = 10_000

_CONNECTION: dict[str, Any] = {
    "application_name": "penstock-dispatch",
    "connect_timeout": 10,
    "keepalives_idle": 15,
    # Compiling a read takes longer than running it.
    "options": "-c jit=off",
}

_LANES_WITH_JOBS = queries(Dialect.POSTGRES)["lanes_with_jobs"]
# Modes are named here, because the database would send the name of each job's mode.
_MODE_NAMES = pyarrow.array([mode.value for mode in MODE_OF])
# Kept for the next round: ADBC first reads all types of a database, which takes longer than a small round.
_idle_connections: dict[SparkDatabase, dbapi.Connection] = {}
Row = tuple[Any, ...]


def packed_plans(spark: SparkSession, database: SparkDatabase, parts: int, tasks: int) -> DataFrame:
    """Return the plan of the announced round, packed for `tasks` tasks and read in `parts` parts."""

    def read(numbers: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        spec = announced()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in planned_lanes(database, spec.ranges[number::parts], spec):
                    yield packed(rows, hashes_of(rows.column("group_key")), tasks)
        freeze_long_lived_objects("reading lanes")

    return spark.range(0, parts, 1, parts).mapInArrow(read, PACKED)


def planned_lanes(
    database: SparkDatabase, spans: Iterable[AwakeRange], spec: RoundSpec
) -> Iterator[pyarrow.RecordBatch]:
    """Return the first lanes of ranges with up to `share` ready jobs of each, in order; in the process of a task."""
    for span in spans:
        for rows in first_lanes(whole_lanes(_stored(database, span, spec)), _rows(span, spec)):
            yield planned(rows, _share(span, spec)).select(COLUMNS)


def _share(span: AwakeRange, spec: RoundSpec) -> int:
    """Return how many jobs a lane may give: of an ordered lane a few, as many as may be on their way."""
    return max(span.jobs // span.lanes, spec.lane_credit)


def _rows(span: AwakeRange, spec: RoundSpec) -> int:
    """Return how many rows to read: those of a lane at least, which has up to its share of each ordered mode."""
    return max(span.jobs, 2 * _share(span, spec))


def _stored(database: SparkDatabase, span: AwakeRange, spec: RoundSpec) -> Iterator[pyarrow.RecordBatch]:
    if database.dialect is Dialect.POSTGRES:
        yield from postgres_lanes(database, span, spec)
        return
    fields = to_arrow_schema(LANE_JOBS)
    rows = lane_rows(database, span, spec)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = zip(zip(*some, strict=True), fields, strict=True)
        arrays = [pyarrow.array(values, field.type) for values, field in columns]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def lane_rows(database: SparkDatabase, span: AwakeRange, spec: RoundSpec) -> Iterator[Row]:
    """Return the jobs of the first lanes of a range in SQLite, in the columns of LANE_JOBS; one lane too many at most.

    Each lane is queried separately, which costs no round trip and stops at the share.
    """
    with closing(_connect(database)) as connection:
        tx = SqliteTransaction(connection)
        # One transaction, so that a lane and its jobs are read at the same moment.
        connection.execute("BEGIN")
        count = 0
        for group_key, ordered, turn, paused, pool in _lanes_of(tx, span, spec.owner.name):
            lane = LaneKey(group_key, bool(ordered))
            share = spec.lane_credit if ordered else _share(span, spec)
            (content,) = tx.first_jobs([LaneQuestion(lane, pool, share)], spec.now_ms, spec.lane_credit)
            rows = _rows_of_lane((*lane, turn, bool(paused), pool, list(content.on_their_way)), content)
            yield from rows
            count += len(rows)
            if count > _rows(span, spec):
                return


def _lanes_of(tx: SqliteTransaction, span: AwakeRange, owner: str) -> list[Row]:
    bounds = {"first": span.first_turn, "last": span.last_turn, "owner": owner}
    if span.stream is None:
        return tx.all("claimed_lanes_of_range", **bounds)
    return tx.all("lanes_of_range", pool=span.stream.pool, subscription=span.stream.subscription, **bounds)


def _connect(database: SparkDatabase) -> sqlite3.Connection:
    return sqlite3.connect(f"{database.path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)


def _rows_of_lane(lane: Row, content: LaneContent) -> list[Row]:
    before = (*lane, *(content.blocker or _NO_BLOCKER))
    return [(*before, job.id, job.mode.value, *job[2:]) for job in content.jobs] or [(*before, *_NO_JOB)]


def postgres_lanes(database: SparkDatabase, span: AwakeRange, spec: RoundSpec) -> Iterator[pyarrow.RecordBatch]:
    """Return the jobs of the first lanes of a range in PostgreSQL, which ADBC reads by binary COPY.

    A process must not run two of these at a time.
    """
    try:
        connection, cursor = _run_query(database, lane_query(span, spec))
        try:
            with closing(cursor), closing(cursor.fetch_record_batch()) as reader:
                for batch in reader:
                    place = batch.schema.get_field_index("mode")
                    yield batch.set_column(place, "mode", _MODE_NAMES.take(batch.column(place)))
        except BaseException:
            # In the middle of a result it cannot be reused.
            connection.close()
            raise
        _idle_connections[database] = connection
    except Error as error:
        address = PostgresAddress(database.url)
        raise DatabaseFailed(f"{address} cannot be read: {address.explain(error)}") from None


def lane_query(span: AwakeRange, spec: RoundSpec) -> str:
    """Return `lanes_with_jobs` with its values written in, as COPY takes no parameters; it reads one row too many."""
    values = {
        "first": span.first_turn,
        "last": span.last_turn,
        "owner": spec.owner.name,
        "pool": "" if span.stream is None else span.stream.pool,
        "subscription": "" if span.stream is None else span.stream.subscription,
        "now_ms": spec.now_ms,
        "share": _share(span, spec),
        "ordered_share": spec.lane_credit,
        "lane_credit": spec.lane_credit,
        "rows": _rows(span, spec) + 1,
    }
    return _LANES_WITH_JOBS % {name: literal(value, Dialect.POSTGRES) for name, value in values.items()}


def _run_query(database: SparkDatabase, text: str) -> tuple[dbapi.Connection, dbapi.Cursor]:
    """Return a connection and a cursor with the result; a kept connection that was lost is replaced."""
    kept = _idle_connections.pop(database, None)
    if kept is not None:
        try:
            return kept, _execute(kept, text)
        except Error:
            kept.close()
    fresh = dbapi.connect(make_conninfo(database.url, **_CONNECTION), autocommit=True)
    try:
        _execute(fresh, f"SET search_path TO {sql.Identifier(database.schema).as_string(None)}").close()
        return fresh, _execute(fresh, text)
    except BaseException:
        fresh.close()
        raise


def _execute(connection: dbapi.Connection, text: str) -> dbapi.Cursor:
    cursor = connection.cursor()
    try:
        cursor.execute(text)
    except BaseException:
        cursor.close()
        raise
    return cursor

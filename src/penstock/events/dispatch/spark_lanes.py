"""The jobs of the lanes whose turn it is, read and planned in parallel ranges of turns; reading changes nothing.

The SELECT by which a task of Spark's reads lanes from PostgreSQL: the first jobs of each, and its first blocker.

The blocked are told from the free by the plan, not here; only how many jobs of a lane are read is limited, per mode,
so that blocked jobs never hide others. Lanes come by their turns, which costs nothing: that is the order in which the
index has them. Both kinds of lanes are put in order by themselves, too, or else PostgreSQL reads the jobs of all lanes,
sorts them, and throws most of them away. So the rows of a lane stand together. Of the last lane that is read rows may
be missing; then there is one more than was asked for.

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

from penstock.engine.store.postgres_address import PostgresAddress
from penstock.events.dispatch.spark_messages import PACKED, RoundCall, announced, packed
from penstock.events.dispatch.spark_plan import LANE_JOBS, first_lanes, hashes_of, planned, whole_lanes
from penstock.events.dispatch.spark_task import COLUMNS
from penstock.events.errors import DatabaseFailed
from penstock.events.store.lanes import AwakeRange
from penstock.events.store.statements import MODE_OF, Dialect, StoredMode, queries, translated
from penstock.spark.database import Database
from penstock.spark.sources.statements import literal
from penstock.spark.workers import spare_collections

_LANE = """
    SELECT group_key, ordered, turn,
        EXISTS (SELECT 1 FROM §subscriptions AS s WHERE s.id = lanes.subscription_id AND s.paused) AS paused
    FROM §lanes AS lanes WHERE turn BETWEEN §first AND §last AND
"""
_JOBS = """
    (
        SELECT id, mode, sequence, created_at_ms, due_at_ms, expires_at_ms, pool, publish_round, updated_at_ms
        FROM §jobs AS jobs
        WHERE state = {READY} AND jobs.group_key = lane.group_key AND jobs.mode = §mode AND §kind
          AND (expires_at_ms IS NULL OR expires_at_ms > §now)
        ORDER BY sequence, created_at_ms, id LIMIT §share
    )
"""
_QUERY = f"""
SELECT lane.group_key, lane.ordered, lane.turn, lane.paused, false AS in_flight,
    blocker.sequence AS blocker_sequence, blocker.created_at_ms AS blocker_created_at_ms, blocker.id AS blocker_id,
    job.id, job.mode, job.sequence, job.created_at_ms, job.due_at_ms, job.expires_at_ms, job.pool, job.publish_round,
    job.updated_at_ms
FROM (
    ({_LANE} awake ORDER BY turn)
    UNION ALL
    ({_LANE} claimed_until_ms IS NOT NULL AND claimed_by = §owner ORDER BY turn)
) AS lane
LEFT JOIN LATERAL (
    SELECT sequence, created_at_ms, id FROM §jobs AS jobs
    WHERE (state = {{ERROR}} OR (state = {{WAITING}} AND delivery_count > 0 AND mode > 0))
      AND jobs.group_key = lane.group_key
    ORDER BY sequence, created_at_ms, id LIMIT 1
) AS blocker ON lane.ordered
LEFT JOIN LATERAL (§runs) AS job ON true
ORDER BY lane.turn LIMIT §rows
"""
_KINDS = {
    StoredMode.BLOCK_ON_ERROR: "lane.ordered",
    StoredMode.NEXT_ON_ERROR: "lane.ordered",
    StoredMode.IMMEDIATE: "NOT lane.ordered",
}


def lane_query(prefix: str, span: AwakeRange, call: RoundCall) -> str:
    """What the first lanes of a range may give; `prefix` names the schema, with its dot."""
    runs = " UNION ALL ".join(
        _JOBS.replace("§mode", str(int(mode))).replace("§kind", kind) for mode, kind in _KINDS.items()
    )
    words = {
        "§runs": runs,
        "§first": str(span.first_turn),
        "§last": str(span.last_turn),
        "§share": str(call.share),
        "§rows": str(call.rows + 1),
        "§now": str(call.now_ms),
        "§subscriptions": f"{prefix}subscriptions",
        "§lanes": f"{prefix}lanes",
        "§jobs": f"{prefix}jobs",
    }
    text = _QUERY
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    # Last, and after what looks for colons and braces: it is the only text that is not ours.
    return translated(text, Dialect.POSTGRES).replace("§owner", literal(call.owner.name, Dialect.POSTGRES))


_LANES = """
SELECT group_key, ordered, turn, EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.id = subscription_id AND s.paused)
FROM lanes WHERE turn BETWEEN :first AND :last AND (awake OR claimed_by = :owner) ORDER BY turn
"""
_RUN = translated(
    """
SELECT id, mode, sequence, created_at_ms, due_at_ms, expires_at_ms, pool, publish_round, updated_at_ms
FROM jobs {by jobs_ready}
WHERE state = {READY} AND group_key = :group_key AND mode = :mode AND (expires_at_ms IS NULL OR expires_at_ms > :now)
ORDER BY sequence, created_at_ms, id LIMIT :share
""",
    Dialect.SQLITE,
)
_BLOCKER = queries(Dialect.SQLITE)["first_blocker"]
_MODES = {True: (StoredMode.BLOCK_ON_ERROR, StoredMode.NEXT_ON_ERROR), False: (StoredMode.IMMEDIATE,)}
_NO_BLOCKER = (None, None, None)
_NO_JOB = (None,) * 9
_BUSY_TIMEOUT_S = 10.0

Row = tuple[Any, ...]


def lane_rows(database: Database, span: AwakeRange, call: RoundCall) -> Iterator[Row]:
    """What the first lanes of a range may give, in the columns of `lane_query`; the last may be one too many."""
    with closing(_connect(database)) as connection:
        bounds = {"first": span.first_turn, "last": span.last_turn, "owner": call.owner.name}
        # One transaction: a lane and its jobs are seen at the same moment.
        connection.execute("BEGIN")
        count = 0
        for group_key, ordered, turn, paused in connection.execute(_LANES, bounds).fetchall():
            lane = (group_key, bool(ordered), turn, bool(paused), False)
            rows = list(_rows_of_lane(connection, lane, call.share, call.now_ms))
            yield from rows
            count += len(rows)
            if count > call.rows:
                return


def _connect(database: Database) -> sqlite3.Connection:
    return sqlite3.connect(f"{database.path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)


def _rows_of_lane(connection: sqlite3.Connection, lane: Row, share: int, now_ms: int) -> Iterator[Row]:
    group_key, ordered, *_ = lane
    found = connection.execute(_BLOCKER, {"group_key": group_key}).fetchone() if ordered else None
    before = (*lane, *(found or _NO_BLOCKER))
    is_empty = True
    for mode in _MODES[ordered]:
        values = {"group_key": group_key, "mode": int(mode), "now": now_ms, "share": share}
        for job_id, code, *rest in connection.execute(_RUN, values):
            is_empty = False
            yield (*before, job_id, MODE_OF[code].value, *rest)
    if is_empty:
        yield (*before, *_NO_JOB)


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


_ROWS_AT_ONCE = 10_000


def packed_plans(spark: SparkSession, database: Database, parts: int, tasks: int) -> DataFrame:
    """What the announced round publishes, packed for so many tasks; so many parts of it are read at once."""

    def read(numbers: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        call = announced()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in planned_lanes(database, call.ranges[number::parts], call):
                    yield packed(rows, hashes_of(rows.column("group_key")), tasks)
        spare_collections("reading lanes")

    return spark.range(0, parts, 1, parts).mapInArrow(read, PACKED)


def planned_lanes(database: Database, spans: Iterable[AwakeRange], call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    """The first lanes of ranges, each lane with at most `share` jobs that go, in order; in the process of a task."""
    for span in spans:
        for rows in first_lanes(whole_lanes(_stored(database, span, call)), call.rows):
            yield planned(rows, call.now_ms, call.share).select(COLUMNS)


def _stored(database: Database, span: AwakeRange, call: RoundCall) -> Iterator[pyarrow.RecordBatch]:
    if database.dialect is Dialect.POSTGRES:
        yield from postgres_lanes(database, span, call)
        return
    fields = [field for field in to_arrow_schema(LANE_JOBS) if field.name != "group_hash"]
    rows = lane_rows(database, span, call)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = zip(zip(*some, strict=True), fields, strict=True)
        arrays = [pyarrow.array(values, field.type) for values, field in columns]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])

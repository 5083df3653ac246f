"""The streaming source: rows in the order of their positions.

PostgreSQL: a row's position comes from the transaction that wrote it. A stream of attempts reads only below the oldest
transaction that still runs, so that its batches can be read again exactly: a transaction that commits late is read late
and never skipped, and one that stays open, in any database of the server, holds the stream back. A stream of events
reads all that wait by their own flag, so nothing holds it back; an event that becomes visible late comes with the next
batch. The row's key orders the rows of one transaction, so that a batch can end anywhere.

SQLite: positions are counted, and with one writer at a time they become visible in order.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import inf
from typing import Any

import msgspec
import pyarrow
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.edge.clock import stopwatch
from penstock.events.store import Dialect
from penstock.spark.database import SparkDatabase
from penstock.spark.errors import PositionsAhead
from penstock.spark.sources.database_reader import reader_for
from penstock.spark.sources.statements import EVERYTHING, STORED, Query, literal

Offset = dict[str, Any]

TASK_ROWS = 50_000
"""A batch with more rows is shared by several tasks."""

LEAST_TASK_ROWS = 5_000
"""Fewer rows are not worth a task of their own."""

_SNAPSHOT = """
SELECT base + pg_snapshot_xmin(now_running)::text::bigint AS horizon,
       base + pg_snapshot_xmax(now_running)::text::bigint AS reached
FROM {0}position_base, pg_current_snapshot() AS now_running
"""

_COUNTED = """
SELECT coalesce(max(seq), 0) + 1 AS horizon, coalesce(max(seq), 0) + 1 AS reached
FROM sqlite_sequence WHERE name = '{1}'
"""

_OUTLOOK = """
WITH counter AS MATERIALIZED ({counter}),
first AS (
    SELECT 1 FROM {table} WHERE {where} AND {after} AND {bound} LIMIT 1
),
last AS (
    SELECT position, {key} AS key FROM {table} WHERE {where} AND {after} AND {bound} ORDER BY {order} {nth}
)
SELECT horizon, reached, EXISTS (SELECT 1 FROM first), (SELECT position FROM last), (SELECT key FROM last) FROM counter
"""

_DIVISIONS = """
SELECT position, key FROM (
    SELECT position, {key} AS key, row_number() OVER (ORDER BY {order}) AS number
    FROM {table} WHERE {where} AND {between}
) AS numbered WHERE number % {rows} = 0 ORDER BY {plain_order}
"""


def rows_per_task(most_rows: int, cores: int) -> int:
    """Return how many rows a task reads, so that a full batch keeps all cores busy."""
    return min(TASK_ROWS, max(LEAST_TASK_ROWS, -(-most_rows // max(1, cores))))


class StreamPlace(msgspec.Struct, frozen=True, order=True):
    """A row's place in a stream; with an empty key, the place before the first row of that position."""

    position: int
    key: str = ""

    @property
    def offset(self) -> dict[str, int | str]:
        """Return the offset that Spark stores."""
        return {"position": self.position, "key": self.key}


START = StreamPlace(-1)
"""Before all rows."""


class WaitingOffset(msgspec.Struct, frozen=True):
    """Where a stream of rows that wait by their own flag is: nothing waits, or can appear, up to its place.

    The batch that ended here took what waited from the place before up to `upto`. `turn` lets it differ from the one
    before when only rows have appeared that were written long ago.
    """

    position: int
    key: str = ""
    turn: int = 0
    upto: StreamPlace | None = None

    @property
    def place(self) -> StreamPlace:
        """Return the place after which rows may wait."""
        return StreamPlace(self.position, self.key)

    @property
    def end(self) -> StreamPlace:
        """Return where its batch ended."""
        return self.place if self.upto is None else self.upto

    def after(self, outlook: "Outlook", until: StreamPlace | None) -> "WaitingOffset":
        """Return where the stream is after a batch of what waits."""
        upto = StreamPlace(outlook.reached) if outlook.last is None else outlook.last
        upto = upto if until is None else min(upto, until)
        place = max(self.place, min(upto, StreamPlace(outlook.horizon)))
        return WaitingOffset(place.position, place.key, self.turn + 1, upto)


class Outlook(msgspec.Struct, frozen=True):
    """What a stream can read; `last` is the row at which a limit ends, if there are that many.

    Nothing can appear below `horizon` any more, and nothing is there from `reached` on.
    """

    horizon: int
    reached: int
    any: bool
    last: StreamPlace | None

    def end(self, start: StreamPlace, until: StreamPlace | None) -> StreamPlace:
        """Return where the next batch ends; `start` if there is nothing to read."""
        if not self.any:
            return start
        end = StreamPlace(self.horizon) if self.last is None else self.last
        return end if until is None else max(start, min(end, until))


class StreamedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a stream reads in the order of positions, restricted to the rows that meet `where`.

    If `waits`, that is a flag that a row loses when it is done.
    """

    name: str
    key: str
    where: str = "true"
    waits: bool = False

    def outlook(
        self,
        start: StreamPlace,
        most_rows: int | None,
        dialect: Dialect,
        prefix: str,
        until: StreamPlace | None = None,
    ) -> str:
        """Return SQL for one row: horizon, highest position, whether there are rows, and where a limit ends."""
        counter = _SNAPSHOT if dialect is Dialect.POSTGRES else _COUNTED
        bound = "position < (SELECT horizon FROM counter)"
        if self.waits:
            bound = "true" if until is None else self._compared("<=", until, dialect)
        return _OUTLOOK.format(
            counter=counter.format(prefix, self.name),
            table=prefix + self.name,
            where=self.where,
            key=self.key,
            order=self._order(dialect),
            after=self._after(start, dialect),
            bound=bound,
            nth="LIMIT 0" if most_rows is None else f"LIMIT 1 OFFSET {most_rows - 1}",
        )

    def divisions(self, start: StreamPlace, end: StreamPlace, rows: int, dialect: Dialect, prefix: str) -> str:
        """Return SQL for the place of every `rows`-th row between two places."""
        return _DIVISIONS.format(
            table=prefix + self.name,
            where=self.where,
            key=self.key,
            order=self._order(dialect),
            plain_order="position, key" if dialect is Dialect.POSTGRES else "position",
            between=self.between(start, end, dialect),
            rows=rows,
        )

    def between(self, start: StreamPlace, end: StreamPlace, dialect: Dialect) -> str:
        """Return the condition of rows after one place and up to another."""
        return f"{self._after(start, dialect)} AND {self._compared('<=', end, dialect)}"

    def _after(self, start: StreamPlace, dialect: Dialect) -> str:
        return self._compared(">", start, dialect)

    def _compared(self, sign: str, place: StreamPlace, dialect: Dialect) -> str:
        if dialect is Dialect.SQLITE:
            # One row has each position; an empty key is before that row.
            return f"position {sign if place.key else {'>': '>=', '<=': '<'}[sign]} {place.position}"
        return f"(position, {self.key}) {sign} ({place.position}, {literal(place.key, dialect)})"

    def _order(self, dialect: Dialect) -> str:
        return "position" if dialect is Dialect.SQLITE else f"position, {self.key}"


STREAMED = {
    # Events fanned out already, by the inline engine or before a crash, are skipped.
    "events": StreamedTable(name="events", key="id", where="fanned_out = 0", waits=True),
    "attempts": StreamedTable(name="attempts", key="job_id"),
}


class SpanPartition(InputPartition):
    """One task's share of a batch: after one place, up to another."""

    def __init__(self, start: StreamPlace, end: StreamPlace) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one table as it grows."""

    def __init__(
        self,
        database: SparkDatabase,
        table: str,
        schema: StructType,
        most_rows: int | None = None,
        task_rows: int = TASK_ROWS,
        least_rows: int = 1,
        longest_wait_s: float = inf,
        seconds: Callable[[], float] = stopwatch,
    ) -> None:
        """Begin a batch when `least_rows` wait, or when fewer have waited for `longest_wait_s`."""
        self._place = database.place
        self._dialect = database.dialect
        self._reader = reader_for(database)
        self._table = STREAMED[table]
        self._schema = schema
        self._most_rows = most_rows
        self._task_rows = task_rows
        self._least_rows = least_rows
        self._longest_wait_s = longest_wait_s
        self._seconds = seconds
        self._waiting_since_s: float | None = None
        self._until: StreamPlace | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the place before the first row."""
        return START.offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the row limit of a batch, if there is one."""
        return ReadAllAvailable() if self._most_rows is None else ReadMaxRows(self._most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read only what is there now."""
        outlook = self.outlook(START, None)
        self._until = StreamPlace(outlook.reached if self._table.waits else outlook.horizon)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next batch ends; where it starts, if nothing can be read or too few rows wait."""
        offset = msgspec.convert(start, WaitingOffset)
        begin = offset.place
        if self._waits_for_more(begin):
            return start
        outlook = self.outlook(begin, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        if begin.position > outlook.reached:
            raise PositionsAhead(self._place, self._table.name, begin.position, outlook.reached)
        if not self._table.waits:
            return outlook.end(begin, self._until).offset
        return _stored(offset.after(outlook, self._until)) if outlook.any else start

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch, several if it is large."""
        if start == end:
            return []
        first, last = msgspec.convert(start, WaitingOffset).place, msgspec.convert(end, WaitingOffset).end
        text = self._table.divisions(first, last, self._task_rows, self._dialect, self._reader.prefix)
        edges = [first, *(StreamPlace(*row) for row in self._reader.rows(text)), last]
        return [SpanPartition(before, after) for before, after in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of a task: the same whenever they are read, but for events that were done meanwhile."""
        assert isinstance(partition, SpanPartition)
        between = self._table.between(partition.start, partition.end, self._dialect)
        query = Query(STORED[self._table.name], tuple(self._schema.names), self._dialect, self._reader.prefix)
        wanted = query.narrowed((self._table.where, between))
        return self._reader.batches(wanted, EVERYTHING, to_arrow_schema(self._schema))

    def stop(self) -> None:
        """Close the connection."""
        self._reader.close()

    def outlook(self, start: StreamPlace, most_rows: int | None) -> Outlook:
        """Return what can be read after a place; a batch takes up to `most_rows`."""
        text = self._table.outlook(start, most_rows, self._dialect, self._reader.prefix, self._until)
        ((horizon, reached, anything, position, key),) = self._reader.rows(text)
        last = None if position is None else StreamPlace(position, key)
        return Outlook(horizon, reached, bool(anything), last)

    def _waits_for_more(self, begin: StreamPlace) -> bool:
        """Return whether there are fewer rows than a batch has at least; a trigger for what is there takes any number.

        A place that the database has not reached is not a wait: `latestOffset` says what is wrong.
        """
        if self._until is not None or self._least_rows <= 1:
            return False
        outlook = self.outlook(begin, self._least_rows)
        if outlook.last is not None or not outlook.any or begin.position > outlook.reached:
            self._waiting_since_s = None
            return False
        now_s = self._seconds()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if now_s - self._waiting_since_s < self._longest_wait_s:
            return True
        self._waiting_since_s = None
        return False


def _stored(offset: WaitingOffset) -> Offset:
    stored: Offset = msgspec.to_builtins(offset)
    return stored

"""The streaming source: rows in the order of their positions, in batches that can be read again exactly.

PostgreSQL: a row's position comes from the transaction that wrote it, and a stream reads only below the oldest
transaction that still runs. So a transaction that commits late is read late and never skipped, and one that stays open
holds all streams back. The row's key orders the rows of one transaction, so that a batch can end anywhere. SQLite:
positions are counted, and with one writer at a time they become visible in order.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import inf

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

Offset = dict[str, int | str]

TASK_ROWS = 50_000
"""A batch with more rows is shared by several tasks."""

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
    SELECT 1 FROM {table} WHERE {where} AND {after} AND position < (SELECT horizon FROM counter) LIMIT 1
),
last AS (
    SELECT position, {key} AS key FROM {table} WHERE {where} AND {after} AND position < (SELECT horizon FROM counter)
    ORDER BY {order} {nth}
)
SELECT horizon, reached, EXISTS (SELECT 1 FROM first), (SELECT position FROM last), (SELECT key FROM last) FROM counter
"""

_DIVISIONS = """
SELECT position, key FROM (
    SELECT position, {key} AS key, row_number() OVER (ORDER BY {order}) AS number
    FROM {table} WHERE {where} AND {between}
) AS numbered WHERE number % {rows} = 0 ORDER BY {plain_order}
"""


class StreamPlace(msgspec.Struct, frozen=True, order=True):
    """A row's place in a stream; with an empty key, the place before the first row of that position."""

    position: int
    key: str = ""

    @property
    def offset(self) -> dict[str, int | str]:
        """Return the offset that Spark stores."""
        return {"position": self.position, "key": self.key}

    @staticmethod
    def of_offset(offset: "Mapping[str, int | str]") -> "StreamPlace":
        """Return the place of an offset."""
        return msgspec.convert(offset, StreamPlace)


START = StreamPlace(-1)
"""Before all rows."""


class Outlook(msgspec.Struct, frozen=True):
    """What a stream can read: all below `horizon`; `last` is the row at which a limit ends, if there are that many."""

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


class StreamedTable(msgspec.Struct, frozen=True):
    """A table that a stream reads in the order of positions, restricted to the rows that meet `where`."""

    name: str
    key: str
    where: str

    def outlook(self, start: StreamPlace, most_rows: int | None, dialect: Dialect, prefix: str) -> str:
        """Return SQL for one row: horizon, highest position, whether there are rows, and where a limit ends."""
        counter = _SNAPSHOT if dialect is Dialect.POSTGRES else _COUNTED
        return _OUTLOOK.format(
            counter=counter.format(prefix, self.name),
            table=prefix + self.name,
            where=self.where,
            key=self.key,
            order=self._order(dialect),
            after=self._after(start, dialect),
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
    "events": StreamedTable("events", "id", "fanned_out = 0"),
    "attempts": StreamedTable("attempts", "job_id", "true"),
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
        self._until = StreamPlace(self.outlook(START, None).horizon)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next batch ends; where it starts, if nothing can be read or too few rows wait."""
        begin = StreamPlace.of_offset(start)
        if self._waits_for_more(begin):
            return start
        outlook = self.outlook(begin, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        if begin.position > outlook.reached:
            raise PositionsAhead(self._place, self._table.name, begin.position, outlook.reached)
        return outlook.end(begin, self._until).offset

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch, several if it is large."""
        first, last = StreamPlace.of_offset(start), StreamPlace.of_offset(end)
        if first == last:
            return []
        text = self._table.divisions(first, last, self._task_rows, self._dialect, self._reader.prefix)
        edges = [first, *(StreamPlace(*row) for row in self._reader.rows(text)), last]
        return [SpanPartition(before, after) for before, after in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of a task, the same whenever they are read."""
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
        text = self._table.outlook(start, most_rows, self._dialect, self._reader.prefix)
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

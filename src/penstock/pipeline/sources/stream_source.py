"""The streaming source: rows in the order of their positions, in batches that can be read again exactly."""

from collections.abc import Iterator
from itertools import pairwise

import pyarrow
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.pipeline.database import Database
from penstock.pipeline.sources.errors import PositionsAhead
from penstock.pipeline.sources.key_range import EVERYTHING
from penstock.pipeline.sources.positions import START, Outlook, Place
from penstock.pipeline.sources.query import Query
from penstock.pipeline.sources.reading import reading_of
from penstock.pipeline.sources.stored_table import STORED
from penstock.pipeline.sources.streamed_table import STREAMED

Offset = dict[str, int | str]
TASK_ROWS = 50_000
"""A batch with more rows is shared by several tasks."""


class SpanPartition(InputPartition):
    """One task's share of a batch: after one place, up to another."""

    def __init__(self, start: Place, end: Place) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one table as it grows."""

    def __init__(
        self,
        database: Database,
        table: str,
        schema: StructType,
        most_rows: int | None = None,
        task_rows: int = TASK_ROWS,
    ) -> None:
        self._place = database.place
        self._dialect = database.dialect
        self._reading = reading_of(database)
        self._table = STREAMED[table]
        self._schema = schema
        self._most_rows = most_rows
        self._task_rows = task_rows
        self._until: Place | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """The first row there is."""
        return START.offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The most rows of a batch, if they are limited."""
        return ReadAllAvailable() if self._most_rows is None else ReadMaxRows(self._most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and no more."""
        self._until = Place(self._outlook(START, None).horizon)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next batch ends; where it starts, if nothing can be read."""
        begin = Place.of_offset(start)
        outlook = self._outlook(begin, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        if begin.position > outlook.reached:
            raise PositionsAhead(self._place, self._table.name, begin.position, outlook.reached)
        return outlook.end(begin, self._until).offset

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """A batch, divided among tasks if it is large."""
        first, last = Place.of_offset(start), Place.of_offset(end)
        if first == last:
            return []
        text = self._table.divisions(first, last, self._task_rows, self._dialect, self._reading.prefix)
        edges = [first, *(Place(*row) for row in self._reading.rows(text)), last]
        return [SpanPartition(before, after) for before, after in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of a share, the same whenever they are read."""
        assert isinstance(partition, SpanPartition)
        between = self._table.between(partition.start, partition.end, self._dialect)
        query = Query(STORED[self._table.name], tuple(self._schema.names), self._dialect, self._reading.prefix)
        wanted = query.narrowed((self._table.where, between))
        return self._reading.batches(wanted, EVERYTHING, to_arrow_schema(self._schema))

    def stop(self) -> None:
        """Hang up."""
        self._reading.close()

    def _outlook(self, start: Place, most_rows: int | None) -> Outlook:
        text = self._table.outlook(start, most_rows, self._dialect, self._reading.prefix)
        ((horizon, reached, anything, position, key),) = self._reading.rows(text)
        last = None if position is None else Place(position, key)
        return Outlook(horizon, reached, bool(anything), last)

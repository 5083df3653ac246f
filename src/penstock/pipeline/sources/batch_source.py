"""The batch source: a table in parallel ranges, with the filters that the database can do."""

from collections.abc import Iterable, Iterator

import pyarrow
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.pipeline.database import Database
from penstock.pipeline.sources.key_range import KeyRange, ranges_between
from penstock.pipeline.sources.pushed_filter import condition
from penstock.pipeline.sources.query import Query
from penstock.pipeline.sources.reading import reading_of
from penstock.pipeline.sources.stored_table import StoredTable


class RangePartition(InputPartition):
    """One task's share."""

    def __init__(self, span: KeyRange) -> None:
        super().__init__(span)
        self.span = span


class TableReader(DataSourceReader):
    """Reads one table."""

    def __init__(self, database: Database, table: StoredTable, schema: StructType, splits: int | None) -> None:
        self._reading = reading_of(database)
        self._schema = schema
        self._splits = splits
        self._query = Query(table, tuple(schema.names), database.dialect, self._reading.prefix)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take what the database can do; Spark does the rest."""
        found = [(wanted, condition(wanted, self._query.table.schema, self._query.dialect)) for wanted in filters]
        self._query = self._query.narrowed([text for _, text in found if text is not None])
        return [wanted for wanted, text in found if text is None]

    def partitions(self) -> list[InputPartition]:
        """The ranges, each one task."""
        try:
            boundaries = self._reading.boundaries(self._query, self._splits)
        finally:
            self._reading.close()
        return [RangePartition(span) for span in ranges_between(boundaries)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of a range."""
        assert isinstance(partition, RangePartition)
        return self._reading.batches(self._query, partition.span, to_arrow_schema(self._schema))

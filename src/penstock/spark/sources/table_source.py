"""The tables of a database as a Python Data Source of Spark.

The batch source: a table in parallel ranges, with the filters that the database can do.

Telling Spark of a database without telling it the password.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import ClassVar

import pyarrow
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.database import SparkDatabase
from penstock.spark.schemas import SUBSCRIPTIONS
from penstock.spark.sources.reading import reading_of
from penstock.spark.sources.statements import STORED, KeyRange, Query, StoredTable, condition, ranges_between
from penstock.spark.sources.stream_source import TASK_ROWS, StreamReader
from penstock.spark.sources.subscription_reading import SubscriptionReader


class RangePartition(InputPartition):
    """One task's share."""

    def __init__(self, span: KeyRange) -> None:
        super().__init__(span)
        self.span = span


class TableReader(DataSourceReader):
    """Reads one table."""

    def __init__(self, database: SparkDatabase, table: StoredTable, schema: StructType, splits: int | None) -> None:
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


class TableSource(DataSource):
    """The tables of one database. Its URL is part of the class, never an option: Spark shows options in plans."""

    database: ClassVar[SparkDatabase]

    def schema(self) -> StructType:
        """The columns asked for."""
        stored = SUBSCRIPTIONS if self._table == "subscriptions" else STORED[self._table].schema
        names = self.options.get("columns")
        return stored if names is None else StructType([stored[name] for name in names.split(",")])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the table named by the options."""
        if self._table == "subscriptions":
            return SubscriptionReader(self.database, schema)
        return TableReader(self.database, STORED[self._table], schema, self._number("splits"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Reads the table named by the options as it grows."""
        task_rows = self._number("task_rows") or TASK_ROWS
        return StreamReader(self.database, self._table, schema, self._number("most_rows"), task_rows)

    @property
    def _table(self) -> str:
        return str(self.options["table"])

    def _number(self, name: str) -> int | None:
        given = self.options.get(name)
        return None if given is None else int(given)


_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def registered(spark: SparkSession, database: SparkDatabase) -> str:
    """The name under which `spark.read.format` finds the tables of a database."""
    # Of the place alone: a digest of the password, however short, would be in plans.
    name = "penstock_" + sha256(f"{database.place} {database.schema}".encode()).hexdigest()[:12]
    members = {"database": database, "name": classmethod(lambda _: name)}
    spark.dataSource.register(type("PenstockTables", (TableSource,), members))
    spark.conf.set(_PUSH_DOWN, "true")
    return name

"""The tables of a database as a Python Data Source of Spark."""

from typing import ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.pipeline.database import Database
from penstock.pipeline.schemas import SUBSCRIPTIONS
from penstock.pipeline.sources.batch_source import TableReader
from penstock.pipeline.sources.stored_table import STORED
from penstock.pipeline.sources.stream_source import TASK_ROWS, StreamReader
from penstock.pipeline.sources.subscription_reading import SubscriptionReader


class TableSource(DataSource):
    """The tables of one database. Its URL is part of the class, never an option: Spark shows options in plans."""

    database: ClassVar[Database]

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

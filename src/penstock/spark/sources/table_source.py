"""The tables of a database as a Python data source of Spark, for batch reads and streams."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from math import inf
from typing import Any, ClassVar

import msgspec
import pyarrow
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.domain.errors import PenstockError
from penstock.domain.subscription import Subscription
from penstock.spark.database import SparkDatabase
from penstock.spark.schemas import SUBSCRIPTIONS
from penstock.spark.sources.database_reader import reader_for
from penstock.spark.sources.statements import DERIVED, STORED, KeyRange, Query, StoredTable, condition, ranges_between
from penstock.spark.sources.stream_source import TASK_ROWS, StreamReader
from penstock.spark.sources.valid_rows import SetAside, set_aside

_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
_SELECT = "SELECT id, definition, paused FROM {}subscriptions ORDER BY id"
_decode = msgspec.json.Decoder(Subscription).decode
_encode = msgspec.json.encode


def registered(spark: SparkSession, database: SparkDatabase) -> str:
    """Register the tables of a database with Spark; return the name for `spark.read.format`."""
    # Without the password, of which even a digest must not appear in plans.
    name = "penstock_" + sha256(f"{database.place} {database.schema}".encode()).hexdigest()[:12]
    members = {"database": database, "name": classmethod(lambda _: name)}
    spark.dataSource.register(type("PenstockTables", (TableSource,), members))
    spark.conf.set(_PUSH_DOWN, "true")
    return name


class TableSource(DataSource):
    """The tables of one database. Its URL is part of the class, not an option: Spark shows options in plans."""

    database: ClassVar[SparkDatabase]

    def schema(self) -> StructType:
        """Return the columns asked for."""
        stored = SUBSCRIPTIONS if self._table == "subscriptions" else STORED[self._table].schema
        names = self.options.get("columns")
        if names is None:
            return stored
        return StructType([DERIVED[name][0] if name in DERIVED else stored[name] for name in names.split(",")])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the table that the options name."""
        if self._table == "subscriptions":
            return SubscriptionReader(self.database, schema)
        return TableReader(self.database, STORED[self._table], schema, self._number("splits"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the stream reader of the table that the options name."""
        task_rows = self._number("task_rows") or TASK_ROWS
        least_rows = self._number("least_rows") or 1
        most_rows, longest_wait_s = self._number("most_rows"), self._number("longest_wait_s") or inf
        return StreamReader(self.database, self._table, schema, most_rows, task_rows, least_rows, longest_wait_s)

    @property
    def _table(self) -> str:
        return str(self.options["table"])

    def _number(self, name: str) -> int | None:
        given = self.options.get(name)
        return None if given is None else int(given)


class RangePartition(InputPartition):
    """One task's share."""

    def __init__(self, span: KeyRange) -> None:
        super().__init__(span)
        self.span = span


class TableReader(DataSourceReader):
    """Reads one table in parallel ranges."""

    def __init__(self, database: SparkDatabase, table: StoredTable, schema: StructType, splits: int | None) -> None:
        self._reader = reader_for(database)
        self._schema = schema
        self._splits = splits
        self._query = Query(table, tuple(schema.names), database.dialect, self._reader.prefix)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the filters that the database can apply; Spark applies the others."""
        found = [(wanted, condition(wanted, self._query.table.schema, self._query.dialect)) for wanted in filters]
        self._query = self._query.narrowed([text for _, text in found if text is not None])
        return [wanted for wanted, text in found if text is None]

    def partitions(self) -> list[InputPartition]:
        """Return the ranges, one task each."""
        try:
            boundaries = self._reader.boundaries(self._query, self._splits)
        finally:
            self._reader.close()
        return [RangePartition(span) for span in ranges_between(boundaries)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of a range."""
        assert isinstance(partition, RangePartition)
        return self._reader.batches(self._query, partition.span, to_arrow_schema(self._schema))


class SubscriptionReader(DataSourceReader):
    """Reads all subscriptions in one task: they are few, and their definitions are JSON."""

    def __init__(self, database: SparkDatabase, schema: StructType) -> None:
        self._database = database
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return all subscriptions in one batch; those that cannot be parsed are set aside."""
        rows: list[dict[str, object]] = []
        bad: list[SetAside] = []
        for subscription_id, definition, paused in self._stored():
            try:
                rows.append(_row(_decode(definition), paused=bool(paused)))
            except (msgspec.MsgspecError, PenstockError, UnicodeError) as error:
                bad.append(SetAside("subscriptions", str(subscription_id), str(error)))
        set_aside(self._database, bad)
        yield pyarrow.RecordBatch.from_pylist(rows, to_arrow_schema(self._schema))

    def _stored(self) -> list[tuple[Any, ...]]:
        reader = reader_for(self._database)
        try:
            return reader.rows(_SELECT.format(reader.prefix))
        finally:
            reader.close()


def _row(subscription: Subscription, *, paused: bool) -> dict[str, object]:
    return {
        "id": subscription.id,
        "tenant": subscription.tenant,
        "name": subscription.name,
        "pattern": subscription.pattern,
        "filter": _encode(subscription.filter).decode(),
        "target": subscription.target,
        "pool": subscription.pool_code,
        "mode": subscription.mode.value,
        "paused": paused,
    }

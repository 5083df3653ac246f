"""Subscriptions as rows: their definitions are JSON in the database, few, and read by one task."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.domain.errors import PenstockError
from penstock.domain.subscription import Subscription
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.reading import reading_of
from penstock.spark.sources.sound_rows import SetAside, set_aside

_SELECT = "SELECT id, definition, paused FROM {}subscriptions ORDER BY id"
_decode = msgspec.json.Decoder(Subscription).decode
_encode = msgspec.json.encode


class SubscriptionReader(DataSourceReader):
    """Reads all subscriptions, as they are when the read begins."""

    def __init__(self, database: SparkDatabase, schema: StructType) -> None:
        self._database = database
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """All of them in one batch; what cannot be understood is set aside."""
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
        reading = reading_of(self._database)
        try:
            return reading.rows(_SELECT.format(reading.prefix))
        finally:
            reading.close()


def _row(subscription: Subscription, *, paused: bool) -> dict[str, object]:
    return {
        "id": subscription.id,
        "tenant": subscription.tenant,
        "name": subscription.name,
        "pattern": subscription.pattern,
        "filter": _encode(subscription.filter).decode(),
        "target": subscription.target,
        "pool": subscription.pool,
        "mode": subscription.mode.value,
        "paused": paused,
    }

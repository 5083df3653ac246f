"""The jobs that events should have caused, by fan-out's own plan, and the events that can cause none."""

from collections.abc import Iterator

import pyarrow
import pyarrow.compute
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.events.fan_out.spark_plan import planner_of

OWED = StructType(
    [
        StructField("event_id", StringType(), nullable=True),
        StructField("subscription_id", StringType(), nullable=True),
        StructField("group_key", StringType(), nullable=True),
        StructField("created_at_ms", LongType(), nullable=True),
        StructField("damage", StringType(), nullable=True),
    ]
)
"""A job; or an event alone, with what is wrong with it."""

_MOST_JOBS = 50_000


def owed_jobs(events: DataFrame, catalog: bytes, future_ms: int) -> DataFrame:
    """What events cause for the subscriptions in a catalog; those received after `future_ms` are damaged."""

    def plan(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        schema = to_arrow_schema(OWED)
        planner = planner_of(catalog)
        for batch in batches:
            is_future = pyarrow.compute.fill_null(
                pyarrow.compute.greater(batch.column("received_ms"), future_ms), False
            )
            yield _future(batch.filter(is_future), schema)
            for planned in planner.plan(batch.filter(pyarrow.compute.invert(is_future)), _MOST_JOBS):
                nothing = pyarrow.nulls(len(planned.jobs), pyarrow.string())
                columns = [planned.jobs.column(name) for name in schema.names[:-1]]
                yield pyarrow.RecordBatch.from_arrays([*columns, nothing], schema=schema)
                damaged = [{"event_id": event_id, "damage": reason} for event_id, reason in planned.set_aside]
                yield pyarrow.RecordBatch.from_pylist(damaged, schema=schema)

    return events.select(*EVENT_COLUMNS).mapInArrow(plan, OWED)


def _future(events: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    rows = [
        {"event_id": event_id, "created_at_ms": received_ms, "damage": "it was received in the future"}
        for event_id, received_ms in zip(
            events.column("id").to_pylist(), events.column("received_ms").to_pylist(), strict=True
        )
    ]
    return pyarrow.RecordBatch.from_pylist(rows, schema=schema)

"""Events × subscriptions → jobs, as DataFrames. Without a shuffle: an event's jobs come from one task, side by side."""

from collections.abc import Iterator

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.pipeline.fan_out.columns import EVENT_COLUMNS, PLANNED_JOBS, SET_ASIDE
from penstock.pipeline.fan_out.damage import examined
from penstock.pipeline.fan_out.planning import planner_of

_MOST_JOBS = 50_000


def planned_jobs(events: DataFrame, catalog: bytes) -> DataFrame:
    """The jobs that events cause for the subscriptions in a catalog (`catalog.packed`); nothing of damaged events."""

    def plan(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        planner = planner_of(catalog)
        for batch in batches:
            for planned in planner.plan(batch, _MOST_JOBS):
                yield planned.jobs

    return events.select(*EVENT_COLUMNS).mapInArrow(plan, PLANNED_JOBS)


def damaged_events(events: DataFrame) -> DataFrame:
    """The events that no job can be made of, and why."""

    def find(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        schema = to_arrow_schema(SET_ASIDE)
        for batch in batches:
            rows = [each._asdict() for each in examined(batch).set_aside]
            yield pyarrow.RecordBatch.from_pylist(rows, schema=schema)

    return events.select(*EVENT_COLUMNS).mapInArrow(find, SET_ASIDE)

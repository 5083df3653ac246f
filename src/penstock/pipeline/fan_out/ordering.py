"""A batch that several tasks share, divided by groups.

Tasks end in any order. Were the events of a group spread over several, a later one's job could be delivered before an
earlier one's is made.
"""

from collections.abc import Iterator

import pyarrow
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.order import DEFAULT_GROUP
from penstock.pipeline.schemas import POSITION


def by_group(events: DataFrame, tasks: int) -> DataFrame:
    """All events of a group in one task, in any order."""
    return events.repartition(tasks, "tenant", _group())


def in_order(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """A task's events in the order in which they were published; Spark itself sorts no stream."""
    gathered = list(batches)
    if gathered:
        order = [(POSITION, "ascending"), ("id", "ascending")]
        yield from pyarrow.Table.from_batches(gathered).sort_by(order).combine_chunks().to_batches()


def _group() -> Column:
    """The rule of `core.plan.group_key`: no group is the group `default`."""
    return f.when(f.col("group_name") != "", f.col("group_name")).otherwise(DEFAULT_GROUP)

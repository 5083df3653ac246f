"""A plan on its way to the tasks that publish it: whole batches as values, so that Spark moves a few large rows.

To take a million jobs apart into rows of the JVM, sort them there, and put them together again took more of the
processor than to read them (decision 0021).
"""

from collections.abc import Iterable, Iterator

import numpy
import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

PACKED = StructType(
    [StructField("task", IntegerType(), nullable=False), StructField("jobs", BinaryType(), nullable=False)]
)
"""Planned rows of whole lanes, and the task that publishes them."""

# Keys and times of a lane are much alike, and the JVM copies each byte several times.
_COMPRESSED = pyarrow.ipc.IpcWriteOptions(compression="lz4")
_SCHEMA = pyarrow.schema([pyarrow.field("task", pyarrow.int32()), pyarrow.field("jobs", pyarrow.binary())])


def packed(rows: pyarrow.RecordBatch, hashes: pyarrow.Array, tasks: int) -> pyarrow.RecordBatch:
    """Rows of PACKED: a group's task is the queue's partition of it, among `tasks` partitions (a power of two)."""
    task_of = hashes.to_numpy() & (tasks - 1)
    numbers = numpy.unique(task_of)
    parts = [rows.filter(pyarrow.array(task_of == number)) for number in numbers]
    columns = [pyarrow.array(numbers, pyarrow.int32()), pyarrow.array(map(_written, parts), pyarrow.binary())]
    return pyarrow.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def spread(plan: DataFrame, tasks: int) -> DataFrame:
    """Each group's jobs to one task."""
    return plan.repartitionById(tasks, "task")


def unpacked(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """The planned rows that came to a task."""
    for batch in batches:
        for jobs in batch.column("jobs"):
            yield from pyarrow.ipc.open_stream(jobs.as_buffer())


def _written(rows: pyarrow.RecordBatch) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())

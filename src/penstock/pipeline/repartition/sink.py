"""The sink that copies: a write of placed messages to it sends them, each task to its partition of the target."""

from collections.abc import Iterator

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.pipeline.repartition.copying import Copy, write_copies
from penstock.pipeline.repartition.placing import PLACE
from penstock.pipeline.repartition.queue_access import QueueAccess

FORMAT = "penstock_queue_copy"

_FIELDS = ("group", "dedup_id", "sequence", "body", "attributes", "trace")


class CopyWriter(DataSourceArrowWriter):
    """Writes to one partition of the target per task."""

    def __init__(self, target: QueueAccess) -> None:
        self._target = target

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Write one partition."""
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is not None:
            write_copies(self._target, first.column(PLACE)[0].as_py(), _copies(first, batches))
        return WriterCommitMessage()


def copy_to(target: QueueAccess, placed: DataFrame) -> None:
    """Write placed messages that the target does not have."""

    # The credentials are part of the class, never an option: Spark shows options in plans.
    class CopySink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: StructType, _overwrite: bool) -> DataSourceArrowWriter:
            return CopyWriter(target)

    placed.sparkSession.dataSource.register(CopySink)
    placed.select(PLACE, *_FIELDS).write.format(FORMAT).mode("append").save()


def _copies(first: pyarrow.RecordBatch, rest: Iterator[pyarrow.RecordBatch]) -> Iterator[Copy]:
    yield from _of(first)
    for batch in rest:
        yield from _of(batch)


def _of(batch: pyarrow.RecordBatch) -> Iterator[Copy]:
    for values in zip(*(batch.column(name).to_pylist() for name in _FIELDS), strict=True):
        yield Copy(*values)

"""The sink that replays: a write of planned jobs to it delivers them, each task its part.

A sink, since a plan with side effects would run them once per action, and a part of them for every look at its rows.
"""

from collections.abc import Iterator

import pyarrow
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.edge.clock import SystemClock
from penstock.events.store.replays import Part
from penstock.pipeline.replay.errand import Errand
from penstock.pipeline.replay.parts import PART
from penstock.pipeline.replay.task import do_part, in_chunks

FORMAT = "penstock_replay"
AT_A_TIME = 250


class ReplayWriter(DataSourceArrowWriter):
    """Does the parts."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Do one part."""
        import uvloop

        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is not None:
            task = TaskContext.get()
            attempt = 0 if task is None else task.taskAttemptId()
            number = first.column(PART)[0].as_py()
            part = Part(self._errand.replay_id, self._errand.run, number, f"{self._errand.run}:{attempt}")
            next_ids = in_chunks(_ids(first, batches), AT_A_TIME)
            uvloop.run(do_part(self._errand, part, next_ids, SystemClock()))
        return WriterCommitMessage()


def replay(planned: DataFrame, errand: Errand) -> None:
    """Deliver planned jobs; returns when all tasks are at their end."""

    # The database's URL is part of the class, never an option: Spark shows options in plans.
    class ReplaySink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: StructType, _overwrite: bool) -> DataSourceArrowWriter:
            return ReplayWriter(errand)

    planned.sparkSession.dataSource.register(ReplaySink)
    planned.write.format(FORMAT).mode("append").save()


def _ids(first: pyarrow.RecordBatch, rest: Iterator[pyarrow.RecordBatch]) -> Iterator[str]:
    yield from first.column("id").to_pylist()
    for batch in rest:
        yield from batch.column("id").to_pylist()

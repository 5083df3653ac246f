"""What the supervisor runs: a named streaming query that can be started, and started again."""

from typing import Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


class StreamingJob(Protocol):
    """One streaming job of the pipeline.

    `start` begins where the checkpoint stands, so that starting it again after a failure repeats at most one batch.
    The query's name is the job's. `lag` may be asked from any thread at any time, also before `start`.
    """

    @property
    def name(self) -> str:
        """What it is called in commands, metrics and the checkpoint's path."""

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Start the query; `checkpoint` is a directory of its own."""

    def lag(self) -> int | None:
        """How many rows wait for it, or None if that cannot be told."""

"""The tables of a database as DataFrames, for batch reads and streams."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.database import SparkDatabase
from penstock.spark.errors import InvalidPipelineOption
from penstock.spark.sources.stream_source import rows_per_task
from penstock.spark.sources.table_source import registered


class Tables:
    """Reads one database. `splits` is the number of tasks of a read; by default its size decides.

    Use each frame at one place of a plan only. A frame that is filtered in two ways in the same plan loses rows: in
    Spark 4.3, all uses of a Python source share the filters pushed to it. Ask for another frame, or persist it.
    """

    def __init__(self, spark: SparkSession, database: SparkDatabase, *, splits: int | None = None) -> None:
        self._spark = spark
        self._splits = splits
        self._format = registered(spark, database)

    def events(self, columns: Sequence[str] | None = None) -> DataFrame:
        """Return all events."""
        return self._read("events", columns)

    def jobs(self, columns: Sequence[str] | None = None) -> DataFrame:
        """Return all jobs, archived or not."""
        return self._read("jobs", columns)

    def attempts(self, columns: Sequence[str] | None = None) -> DataFrame:
        """Return all attempts."""
        return self._read("attempts", columns)

    def subscriptions(self) -> DataFrame:
        """Return all subscriptions, as of the time an action reads them."""
        return self._read("subscriptions", None)

    def attempt_stream(
        self, most_rows: int | None = None, *, least_rows: int = 1, longest_wait_s: int = 0
    ) -> DataFrame:
        """Return the stream of attempts, up to `most_rows` in a batch. A batch that is read again is the same.

        A batch has `least_rows` at least, unless they have waited for `longest_wait_s`.
        """
        reader = self._spark.readStream.format(self._format).option("table", "attempts")
        if most_rows is not None:
            if most_rows < 1:
                raise InvalidPipelineOption(f"a batch of up to {most_rows} rows reads nothing: use 1 or more")
            cores = self._spark.sparkContext.defaultParallelism
            reader = reader.option("most_rows", most_rows).option("task_rows", rows_per_task(most_rows, cores))
        return reader.option("least_rows", least_rows).option("longest_wait_s", longest_wait_s).load()

    def _read(self, table: str, columns: Sequence[str] | None) -> DataFrame:
        reader = self._spark.read.format(self._format).option("table", table)
        if columns is not None:
            reader = reader.option("columns", ",".join(columns))
        if self._splits is not None:
            reader = reader.option("splits", self._splits)
        return reader.load()

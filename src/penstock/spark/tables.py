"""The tables of a database as DataFrames: batch and streaming."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.database import SparkDatabase
from penstock.spark.errors import InvalidPipelineOption
from penstock.spark.sources.table_source import registered


class Tables:
    """Reads one database. `splits` says how many tasks share a read, else its size does.

    Each call gives a frame for one place in a plan. One that is filtered in two ways in the same plan loses rows: with
    Spark 4.3 the filters pushed to a Python source are one for all its uses. Ask for another frame, or persist it.
    """

    def __init__(self, spark: SparkSession, database: SparkDatabase, *, splits: int | None = None) -> None:
        self._spark = spark
        self._splits = splits
        self._format = registered(spark, database)

    def events(self, columns: Sequence[str] | None = None) -> DataFrame:
        """All events."""
        return self._read("events", columns)

    def jobs(self, columns: Sequence[str] | None = None) -> DataFrame:
        """All jobs, archived or not."""
        return self._read("jobs", columns)

    def attempts(self, columns: Sequence[str] | None = None) -> DataFrame:
        """All attempts."""
        return self._read("attempts", columns)

    def subscriptions(self) -> DataFrame:
        """All subscriptions, as they are when an action reads them."""
        return self._read("subscriptions", None)

    def attempt_stream(self, most_rows: int | None = None) -> DataFrame:
        """All attempts, as they come; at most so many in a batch. A batch that is read again is the same."""
        reader = self._spark.readStream.format(self._format).option("table", "attempts")
        if most_rows is not None:
            if most_rows < 1:
                raise InvalidPipelineOption(f"a batch of at most {most_rows} rows reads nothing: use 1 or more")
            reader = reader.option("most_rows", most_rows)
        return reader.load()

    def _read(self, table: str, columns: Sequence[str] | None) -> DataFrame:
        reader = self._spark.read.format(self._format).option("table", table)
        if columns is not None:
            reader = reader.option("columns", ",".join(columns))
        if self._splits is not None:
            reader = reader.option("splits", self._splits)
        return reader.load()

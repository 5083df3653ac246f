"""Makes Spark start faster on this machine: runs a small job once and archives the classes that it loaded."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkUnavailable
from penstock.spark.jvm import archive_option, archive_path
from penstock.spark.requirements import require_spark
from penstock.spark.session import JAVA_OPTIONS, SessionSettings, spark_session

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_WRITE_S = 300
_POLL_S = 0.5


def warm_up() -> Path:
    """Write the archive of Spark's classes and return its path."""
    archive = archive_path(require_spark())
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SparkUnavailable(f"cannot create {archive.parent}: {error.strerror or error}") from error
    archive.unlink(missing_ok=True)
    unfinished = archive.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-warm-up-") as directory:
        settings = SessionSettings(app_name="penstock-warm-up", conf={JAVA_OPTIONS: archive_option(unfinished)})
        with spark_session(settings) as spark:
            _exercise(spark, directory)
        _end_jvm()
    if not unfinished.is_file():
        raise SparkUnavailable(
            "this Java wrote no archive of Spark's classes; Spark works without it, but starts slower"
        )
    return unfinished.replace(archive)


def _exercise(spark: SparkSession, directory: str) -> None:
    """Do what the jobs do: stream, join, group, sort, call Python, write and read Parquet."""
    rows = spark.range(1000).select("id", (f.col("id") % 7).alias("key"), f.col("id").cast("string").alias("text"))
    rows.write.partitionBy("key").parquet(f"{directory}/rows")
    done = Event()

    def take(batch: DataFrame, _: int) -> None:
        joined = batch.join(spark.read.parquet(f"{directory}/rows"), "id", "left")
        counted = joined.groupBy("key").agg(f.count("*").alias("count"), f.max("text")).orderBy("key")
        if counted.mapInArrow(_same, counted.schema).repartition(2, "key").toPandas() is not None:
            done.set()

    spark.dataSource.register(_Numbers)
    ticks = spark.readStream.format(_Numbers.name()).load()
    writer = ticks.writeStream.foreachBatch(take).option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        while query.isActive and not done.wait(_POLL_S):
            pass
    finally:
        query.stop()


def _same(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    yield from batches


class _Numbers(DataSource):
    """A Python source that always has another row, like the jobs' sources."""

    @classmethod
    def name(cls) -> str:
        return "penstock_warm_up"

    def schema(self) -> str:
        return "id long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _NumbersReader()


class _NumbersReader(DataSourceStreamReader):
    """One row per batch."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"next": start["next"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["next"])]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        import pyarrow

        yield pyarrow.RecordBatch.from_pydict({"id": [partition.value]})


def _end_jvm() -> None:
    """End the JVM, which then writes the archive."""
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.proc.stdin.close()
    gateway.proc.wait(_WRITE_S)

"""The Parquet files of a lake: `day=…/batch=…/*.parquet`."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from penstock.pipeline.facts.columns import DAY, FACTS

BATCH = "batch"
# Without a schema Spark would take days for dates, and the names of batches for whatever they look like.
_STORED = StructType([*FACTS.fields]).add(BATCH, StringType())


def directory_of(day: str, batch: str) -> str:
    """Where a batch's facts of a day are, in the lake."""
    return f"{DAY}={day}/{BATCH}={batch}"


def write(facts: DataFrame, path: str, batch: str) -> None:
    """Write a batch's directories, in place of any of the same name."""
    (
        facts.withColumn(BATCH, f.lit(batch))
        .sortWithinPartitions("group_key", "at_ms")
        .write.partitionBy(DAY, BATCH)
        .mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .parquet(path)
    )


def read(spark: SparkSession, path: str, wanted: Sequence[tuple[str, str]]) -> DataFrame:
    """The facts of some batches of some days."""
    if not wanted:
        return spark.createDataFrame([], FACTS)
    places = [f"{path}/{directory_of(day, batch)}" for day, batch in wanted]
    return spark.read.schema(_STORED).option("basePath", path).parquet(*places).select(*FACTS.names)

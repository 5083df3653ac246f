"""The lake of delivery facts: its interface, and its form as a Delta table."""

from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import Protocol

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.events.statistics import BEFORE_ALL, StatisticsPlace
from penstock.history.lake.facts import DAY, FACTS, place
from penstock.spark.errors import SparkUnavailable


class LakeFormat(StrEnum):
    """The format of the lake."""

    PARQUET = "parquet"
    DELTA = "delta"


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction did to a day."""

    day: str
    rows: int
    batches: int


class Lake(Protocol):
    """Facts, added in the order of their places and never changed."""

    def upto(self) -> StatisticsPlace:
        """Return the last attempt that is in the lake or was set aside."""
        ...

    def add(self, facts: DataFrame, days: dict[str, int], upto: StatisticsPlace) -> None:
        """Add the facts of a batch that ends at a place, atomically and once; `days` has their number by day."""

    def days(self) -> list[str]:
        """Return the days that have facts, in order."""
        ...

    def facts(self, days: Sequence[str] | None = None) -> DataFrame:
        """Return the facts of some days, or of all."""
        ...

    def compact(self, day: str) -> Compacted | None:
        """Write a day's facts to few files; None if they are in few already."""
        ...

    def tidy(self) -> None:
        """Compact the days that have become slow to read."""


def open_lake(spark: SparkSession, path: str, lake_format: LakeFormat = LakeFormat.PARQUET) -> Lake:
    """Return the lake in a directory, which need not exist yet."""
    if lake_format is LakeFormat.PARQUET:
        from penstock.history.lake.parquet_lake import ParquetLake

        return ParquetLake(spark, path)
    if find_spec("delta") is None:
        raise SparkUnavailable(
            "--format delta needs the package delta-spark: install it, and give Spark its jar with "
            "`--conf spark.jars.packages=io.delta:…`, or use --format parquet, which needs nothing"
        )

    return DeltaLake(spark, path)


class DeltaLake:
    """Facts in a Delta table, whose log makes an append atomic. One process adds, any number read."""

    def __init__(self, spark: SparkSession, path: str, source: str = LakeFormat.DELTA) -> None:
        self._spark = spark
        self._path = path
        self._source = source

    def upto(self) -> StatisticsPlace:
        """Return the last attempt that is a fact; attempts set aside after it are only checked again."""
        last = self.facts().agg(f.max(place()).alias("last")).collect()[0]["last"]
        return BEFORE_ALL if last is None else StatisticsPlace(*last)

    def add(self, facts: DataFrame, days: dict[str, int], upto: StatisticsPlace) -> None:
        """Append, in one Delta transaction."""
        facts.repartition(f.col(DAY)).write.format(self._source).partitionBy(DAY).mode("append").save(self._path)

    def days(self) -> list[str]:
        """Return the days that have facts."""
        return sorted(row[DAY] for row in self.facts().select(DAY).distinct().collect())

    def facts(self, days: Sequence[str] | None = None) -> DataFrame:
        """Return the facts of some days, or of all."""
        try:
            facts = self._spark.read.format(self._source).load(self._path)
        except AnalysisException as error:
            if error.getCondition() not in ("PATH_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND"):
                raise
            return self._spark.createDataFrame([], FACTS)
        # Cast, because Spark may read the day in a directory's name as a date.
        facts = facts.select(*(f.col(field.name).cast(field.dataType) for field in FACTS))
        return facts if days is None else facts.where(f.col(DAY).isin(*days))

    def tidy(self) -> None:
        """Do nothing: a Delta table's properties say when it compacts itself."""

    def compact(self, day: str) -> Compacted | None:
        """Let Delta compact the day."""
        if day not in self.days():
            return None
        self._spark.sql(f"OPTIMIZE delta.`{self._path}` WHERE {DAY} = '{day}'")
        return Compacted(day, self.facts([day]).count(), 0)

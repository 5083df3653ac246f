"""The lake of delivery facts: what the facts job adds to and reports read, in one of two formats.

A lake in Delta's format: its own log makes an append whole, and the table itself tells how far it goes.
"""

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
    """How facts are kept."""

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
        """The last attempt whose fact, or whose being set aside, is in the lake."""
        ...

    def add(self, facts: DataFrame, days: dict[str, int], upto: StatisticsPlace) -> None:
        """Add the facts of a batch that ends at a place, as a whole and once; `days` says how many each day has."""

    def days(self) -> list[str]:
        """The days that have facts, in order."""
        ...

    def facts(self, days: Sequence[str] | None = None) -> DataFrame:
        """The facts of some days, or of all."""
        ...

    def compact(self, day: str) -> Compacted | None:
        """Write a day's facts into few files; None if they are in few already."""
        ...

    def tidy(self) -> None:
        """Compact the days that have become slow to read."""


def open_lake(spark: SparkSession, path: str, lake_format: LakeFormat = LakeFormat.PARQUET) -> Lake:
    """The lake in a directory, which need not be there yet."""
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
    """Facts in a Delta table. One process adds, any number read."""

    def __init__(self, spark: SparkSession, path: str, source: str = LakeFormat.DELTA) -> None:
        self._spark = spark
        self._path = path
        self._source = source

    def upto(self) -> StatisticsPlace:
        """The last attempt that is a fact; those set aside behind it are only looked at again."""
        last = self.facts().agg(f.max(place()).alias("last")).collect()[0]["last"]
        return BEFORE_ALL if last is None else StatisticsPlace(*last)

    def add(self, facts: DataFrame, days: dict[str, int], upto: StatisticsPlace) -> None:
        """Append, in one transaction of Delta's."""
        facts.repartition(f.col(DAY)).write.format(self._source).partitionBy(DAY).mode("append").save(self._path)

    def days(self) -> list[str]:
        """The days that have facts."""
        return sorted(row[DAY] for row in self.facts().select(DAY).distinct().collect())

    def facts(self, days: Sequence[str] | None = None) -> DataFrame:
        """The facts of some days, or of all."""
        try:
            facts = self._spark.read.format(self._source).load(self._path)
        except AnalysisException as error:
            if error.getCondition() not in ("PATH_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND"):
                raise
            return self._spark.createDataFrame([], FACTS)
        # As written: what reads a directory's name may take a day for a date.
        facts = facts.select(*(f.col(field.name).cast(field.dataType) for field in FACTS))
        return facts if days is None else facts.where(f.col(DAY).isin(*days))

    def tidy(self) -> None:
        """Nothing to do: a Delta table says by its properties when it compacts itself."""

    def compact(self, day: str) -> Compacted | None:
        """Have Delta do it."""
        if day not in self.days():
            return None
        self._spark.sql(f"OPTIMIZE delta.`{self._path}` WHERE {DAY} = '{day}'")
        return Compacted(day, self.facts([day]).count(), 0)

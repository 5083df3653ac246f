"""The lake of delivery facts: what the facts job adds to and reports read, in one of two formats."""

from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import Protocol

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.events.statistics.minutes import Place
from penstock.pipeline.errors import SparkUnavailable


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

    def upto(self) -> Place:
        """The last attempt whose fact, or whose being set aside, is in the lake."""
        ...

    def add(self, facts: DataFrame, days: dict[str, int], upto: Place) -> None:
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
        from penstock.pipeline.facts.parquet_lake import ParquetLake

        return ParquetLake(spark, path)
    if find_spec("delta") is None:
        raise SparkUnavailable(
            "--format delta needs the package delta-spark: install it, and give Spark its jar with "
            "`--conf spark.jars.packages=io.delta:…`, or use --format parquet, which needs nothing"
        )
    from penstock.pipeline.facts.delta_lake import DeltaLake

    return DeltaLake(spark, path)

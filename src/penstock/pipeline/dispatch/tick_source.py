"""A stream of ticks: it moves on when lanes are awake, and costs one small question when none is.

What a batch dispatches it looks up itself. So a tick carries nothing, and one that comes twice does no harm.
"""

from collections.abc import Iterator
from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StructField, StructType

from penstock.edge.clock import stopwatch
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.bell import bell_of

# Spark asks again at once; a stop waits no longer than this.
_WAIT_S = 0.1

Offset = dict[str, int]


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Ticks while there are lanes to look at."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bell = bell_of(database)
        self._waits = True

    def __reduce__(self) -> "tuple[type[TickReader], tuple[Database]]":
        # Spark takes readers to other processes, where a connection would be of no use.
        return TickReader, (self._database,)

    def initialOffset(self) -> Offset:  # noqa: N802
        """Before the first tick."""
        return {"tick": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do not wait for more than there is."""
        self._waits = False

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """One tick on if lanes are awake, at once or after a short wait; else where it was."""
        until_s = stopwatch() + _WAIT_S
        while not self._bell.rings():
            left_s = until_s - stopwatch()
            if left_s <= 0 or not self._waits:
                return start
            self._bell.wait(left_s)
        return {"tick": start["tick"] + 1}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """A tick has no rows."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """Nothing."""
        return iter(())

    def stop(self) -> None:
        """Hang up."""
        self._bell.close()


class TickSource(DataSource):
    """Ticks of one database. Its URL is part of the class, never an option: Spark shows options in plans."""

    database: ClassVar[Database]

    @classmethod
    def name(cls) -> str:
        """What `readStream.format` finds it by."""
        return "penstock_ticks"

    def schema(self) -> StructType:
        """One column that is never filled."""
        return StructType([StructField("tick", LongType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The ticks."""
        return TickReader(self.database)


def ticks(spark: SparkSession, database: Database) -> str:
    """Tell Spark of the ticks of a database; the name of their format."""
    spark.dataSource.register(type("PenstockTicks", (TickSource,), {"database": database}))
    return TickSource.name()

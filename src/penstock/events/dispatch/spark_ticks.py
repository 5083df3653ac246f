"""A stream of ticks: it moves on when lanes are awake, and costs one small question when none is.

What a batch dispatches it looks up itself. So a tick carries nothing, and one that comes twice does no harm.

Whether there are lanes to look at, asked by a process that does nothing else.
"""

import sqlite3
from collections.abc import Iterator
from threading import Event
from typing import ClassVar, Protocol

import psycopg
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StructField, StructType

from penstock.edge.clock import stopwatch
from penstock.engine.store.postgres_address import PostgresAddress, Session
from penstock.events.errors import DatabaseFailed
from penstock.events.store import Dialect, queries
from penstock.spark.database import SparkDatabase

_POLL_S = 0.02
_BUSY_TIMEOUT_S = 10.0
_QUESTION = "any_lane_awake"


class LaneWatcher(Protocol):
    """Rings while lanes are awake."""

    def rings(self) -> bool:
        """Whether lanes are awake."""
        ...

    def wait(self, within_s: float) -> None:
        """Return when it may ring, or when the time is over."""

    def close(self) -> None:
        """Hang up."""


def bell_of(database: SparkDatabase) -> LaneWatcher:
    """The bell of a database; it connects when it is asked for the first time."""
    return SqliteBell(database) if database.dialect is Dialect.SQLITE else PostgresBell(database)


class PostgresBell:
    """Hears of every commit that wakes lanes."""

    def __init__(self, database: SparkDatabase) -> None:
        self._database = database
        self._session: Session | None = None

    def rings(self) -> bool:
        """Whether lanes are awake; a connection that was lost is made anew once."""
        try:
            return self._ask()
        except psycopg.OperationalError:
            self.close()
        try:
            return self._ask()
        except psycopg.Error as error:
            address = PostgresAddress(self._database.url)
            raise DatabaseFailed(f"{address} cannot be read: {address.explain(error)}") from None

    def wait(self, within_s: float) -> None:
        """Return when somebody has woken lanes, or when the time is over."""
        if self._session is None:
            return
        try:
            for _ in self._session.notifies(timeout=within_s, stop_after=1):
                return
        except psycopg.OperationalError:
            self.close()

    def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _ask(self) -> bool:
        if self._session is None:
            self._session = PostgresAddress(self._database.url).connect(self._database.schema)
            self._session.execute("LISTEN penstock_jobs")
        row = self._session.execute(queries(Dialect.POSTGRES)[_QUESTION].encode()).fetchone()
        return bool(row and row[0])


class SqliteBell:
    """Nobody calls across processes here, so it looks often; that takes microseconds."""

    def __init__(self, database: SparkDatabase) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._never = Event()

    def rings(self) -> bool:
        """Whether lanes are awake."""
        try:
            if self._connection is None:
                uri = f"{self._database.path.as_uri()}?mode=ro"
                self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
            return bool(self._connection.execute(queries(Dialect.SQLITE)[_QUESTION]).fetchone()[0])
        except sqlite3.Error as error:
            raise DatabaseFailed(f"{self._database.place} cannot be read: {error}") from error

    def wait(self, within_s: float) -> None:
        """Return after a moment."""
        self._never.wait(min(within_s, _POLL_S))

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# Spark asks again at once; a stop waits no longer than this.
_WAIT_S = 0.1

Offset = dict[str, int]


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Ticks while there are lanes to look at."""

    def __init__(self, database: SparkDatabase) -> None:
        self._database = database
        self._bell = bell_of(database)
        self._waits = True

    def __reduce__(self) -> "tuple[type[TickReader], tuple[SparkDatabase]]":
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

    database: ClassVar[SparkDatabase]

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


def ticks(spark: SparkSession, database: SparkDatabase) -> str:
    """Tell Spark of the ticks of a database; the name of their format."""
    spark.dataSource.register(type("PenstockTicks", (TickSource,), {"database": database}))
    return TickSource.name()

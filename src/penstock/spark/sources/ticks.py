"""A stream of ticks that advances while more than a few lanes are awake, and costs one small query while it rests.

A tick carries no data: each batch looks up what to dispatch, so a repeated tick does no harm.
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

from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.domain.pace.credit import CreditBook
from penstock.edge.clock import SystemClock, stopwatch
from penstock.engine.store.postgres_address import PostgresAddress, Session
from penstock.events.errors import DatabaseFailed
from penstock.events.store import Dialect, Transaction, credited_streams
from penstock.events.store.postgres import PostgresTransaction
from penstock.events.store.sqlite.transaction import SqliteTransaction
from penstock.spark.database import SparkDatabase

# Spark asks again at once; a stop waits for this long at most.
_WAIT_S = 0.5
_POLL_S = 0.05
_BUSY_TIMEOUT_S = 10.0
_MOST = 1_000_000
Offset = dict[str, int]


def ticks(
    spark: SparkSession, database: SparkDatabase, few_lanes: int = 0, default_pool: str = DEFAULT_DISPATCH_POOL
) -> str:
    """Register the ticks of a database with Spark; return the name of their format."""
    fields = {"database": database, "few_lanes": few_lanes, "default_pool": default_pool}
    spark.dataSource.register(type("PenstockTicks", (TickSource,), fields))
    return TickSource.name()


class TickSource(DataSource):
    """The ticks of one database. Its URL is part of the class, not an option: Spark shows options in plans."""

    database: ClassVar[SparkDatabase]
    few_lanes: ClassVar[int]
    default_pool: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """Return the name for `readStream.format`."""
        return "penstock_ticks"

    def schema(self) -> StructType:
        """Return one column that is never filled."""
        return StructType([StructField("tick", LongType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of ticks."""
        return TickReader(self.database, self.few_lanes, self.default_pool)


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Ticks while more than `few_lanes` are awake, and a pool of them has credit."""

    def __init__(self, database: SparkDatabase, few_lanes: int = 0, default_pool: str = DEFAULT_DISPATCH_POOL) -> None:
        self._database = database
        self._few_lanes = few_lanes
        self._default_pool = default_pool
        self._watcher = lane_watcher(database, CreditBook(default_pool))
        self._waits = True

    def __reduce__(self) -> "tuple[type[TickReader], tuple[SparkDatabase, int, str]]":
        # Spark sends readers to other processes, which cannot use this one's connection.
        return TickReader, (self._database, self._few_lanes, self._default_pool)

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first tick."""
        return {"tick": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do not wait for lanes that are not awake yet."""
        self._waits = False

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the next tick if enough lanes are awake, at once or after a short wait; else the same offset."""
        until_s = stopwatch() + _WAIT_S
        while self._watcher.count_awake(self._few_lanes + 1) <= self._few_lanes:
            left_s = until_s - stopwatch()
            if left_s <= 0 or not self._waits:
                return start
            self._watcher.wait(left_s)
        return {"tick": start["tick"] + 1}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return no partitions: a tick has no rows."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """Return no rows."""
        return iter(())

    def stop(self) -> None:
        """Close the connection."""
        self._watcher.close()


class LaneWatcher(Protocol):
    """Knows how many lanes are awake."""

    def count_awake(self, most: int) -> int:
        """Return how many lanes are awake, counted up to `most`; 0 if there are `most` and no pool has credit."""
        ...

    def wait(self, within_s: float) -> None:
        """Wait until lanes may be awake, for `within_s` at most."""

    def close(self) -> None:
        """Close the connection."""


def lane_watcher(database: SparkDatabase, credit: CreditBook) -> LaneWatcher:
    """Return the watcher of a database; it connects on first use."""
    kind = SqliteLaneWatcher if database.dialect is Dialect.SQLITE else PostgresLaneWatcher
    return kind(database, credit)


def _awake(tx: Transaction, most: int, credit: CreditBook) -> int:
    """Return how many lanes are awake, counted up to `most`; at `most`, 0 if none of their pools has credit."""
    ((count,),) = tx.all("count_awake", most=most)
    if count < most:
        return int(count)
    grants = credited_streams(tx, SystemClock().now_ms(), _MOST, credit)
    for stream, jobs in grants.items():
        # The round that begins now will use it; until then it is not granted again.
        credit.published(stream, jobs)
    return most if grants else 0


class PostgresLaneWatcher:
    """Is notified of every commit that wakes lanes."""

    def __init__(self, database: SparkDatabase, credit: CreditBook) -> None:
        self._database = database
        self._credit = credit
        self._session: Session | None = None

    def count_awake(self, most: int) -> int:
        """Return how many lanes are awake; reconnect once if the connection was lost."""
        try:
            return self._ask(most)
        except psycopg.OperationalError:
            self.close()
        try:
            return self._ask(most)
        except psycopg.Error as error:
            address = PostgresAddress(self._database.url)
            raise DatabaseFailed(f"{address} cannot be read: {address.explain(error)}") from None

    def wait(self, within_s: float) -> None:
        """Wait until lanes are woken, for `within_s` at most."""
        if self._session is None:
            return
        try:
            for _ in self._session.notifies(timeout=within_s, stop_after=1):
                return
        except psycopg.OperationalError:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _ask(self, most: int) -> int:
        if self._session is None:
            self._session = PostgresAddress(self._database.url).connect(self._database.schema)
            self._session.execute("LISTEN penstock_jobs")
        return _awake(PostgresTransaction(self._session), most, self._credit)


class SqliteLaneWatcher:
    """Polls often, as SQLite has no notifications between processes; a poll takes microseconds."""

    def __init__(self, database: SparkDatabase, credit: CreditBook) -> None:
        self._database = database
        self._credit = credit
        self._connection: sqlite3.Connection | None = None
        self._never = Event()

    def count_awake(self, most: int) -> int:
        """Return how many lanes are awake, counted up to `most`."""
        try:
            if self._connection is None:
                uri = f"{self._database.path.as_uri()}?mode=ro"
                self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
            return _awake(SqliteTransaction(self._connection), most, self._credit)
        except sqlite3.Error as error:
            raise DatabaseFailed(f"{self._database.place} cannot be read: {error}") from error

    def wait(self, within_s: float) -> None:
        """Wait for a moment."""
        self._never.wait(min(within_s, _POLL_S))

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

"""Keeps up to date what the stream of attempts does not bring: `events`, `subscriptions`, and jobs without an attempt.

Events are taken by position, up to the horizon below which nothing can appear any more. A subscription gets a row
whenever it differs from its last one.
"""

import logging
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

import pyarrow
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from penstock.edge.clock import Clock
from penstock.edge.randomness import random_bytes
from penstock.events.statistics import endpoint_of
from penstock.history.lake.lake import Lake
from penstock.history.lake.rows import event_rows
from penstock.history.lake.schema import EVENTS, POSITION, SUBSCRIPTIONS
from penstock.history.lake.untried import UntriedJobs
from penstock.history.lake.writer import write_rows
from penstock.spark.database import SparkDatabase
from penstock.spark.schemas import SUBSCRIPTIONS as STORED_SUBSCRIPTIONS
from penstock.spark.sources.database_reader import reader_for
from penstock.spark.sources.horizon import warn_of_long_transaction
from penstock.spark.sources.stream_source import LEAST_TASK_ROWS, START, StreamReader
from penstock.spark.sources.table_source import SubscriptionReader
from penstock.spark.tables import Tables

log = logging.getLogger(__name__)
_TASK_ROWS = 200_000
_STORED_EVENTS = (
    "id", "tenant", "source", "external_id", "type", "subject", "time_ms", "content_type", "group_name", "received_ms",
    "data_bytes", "position",
)  # fmt: skip
_COUNT = "SELECT count(*) FROM {}events WHERE position > {} AND position < {}"


class LakeSync:
    """Adds what is new; it may be repeated and stopped at any time."""

    def __init__(self, spark: SparkSession, database: SparkDatabase, lake: Lake, clock: Clock) -> None:
        self._spark = spark
        self._database = database
        self._lake = lake
        self._clock = clock
        self._untried = UntriedJobs(database, lake)

    def run_beside(self, query: StreamingQuery, every_s: float) -> None:
        """Add what is new now and then, until a query ends."""
        ended = Event()
        Thread(target=_set_after, args=(query, ended), daemon=True).start()
        Thread(target=self._run, args=(ended, every_s), name="penstock-lake", daemon=True).start()

    def add(self) -> int:
        """Add new events, changed subscriptions, and jobs that ended without an attempt; return how many rows."""
        return self.add_events() + self.add_subscriptions() + self._untried.add(self._clock.now_ms())

    def add_events(self) -> int:
        """Add the events that are not yet in the lake."""
        files = self._lake.tables[EVENTS.name]
        before = files.state()
        after = -1 if before.upto is None else before.upto
        count, horizon = self._waiting(after)
        if not count:
            return 0
        cores = self._spark.sparkContext.defaultParallelism
        splits = max(count // _TASK_ROWS, min(cores, count // LEAST_TASK_ROWS), 1)
        tables = Tables(self._spark, self._database, splits=splits)
        waiting = (f.col(POSITION) > after) & (f.col(POSITION) < horizon)
        written = write_rows(event_rows(tables.events(_STORED_EVENTS).where(waiting)), files)
        files.commit(written, horizon - 1, before)
        return sum(file.rows for file in written)

    def add_subscriptions(self) -> int:
        """Add a row for each subscription that is new, has changed or was deleted."""
        files = self._lake.tables[SUBSCRIPTIONS.name]
        before = files.state()
        known = files.read(files.files(), files.table.names).to_pylist()
        last = {row["subscription_id"]: row for row in sorted(known, key=lambda row: row[POSITION])}
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        changed = _changed(last, self._subscriptions())
        if not changed:
            return 0
        first = 0 if before.upto is None else before.upto + 1
        rows = [{**row, "valid_from": now, POSITION: first + number} for number, row in enumerate(changed)]
        files.current()
        table = pyarrow.Table.from_pylist(rows, files.table.arrow)
        files.commit(files.write(table, f"part-{random_bytes(8).hex()}"), first + len(rows) - 1, before)
        return len(rows)

    def _waiting(self, after: int) -> tuple[int, int]:
        """Return how many events wait, and the position below which they are."""
        events = StreamReader(self._database, "events", STORED_SUBSCRIPTIONS)
        reader = reader_for(self._database)
        try:
            horizon = events.outlook(START, None).horizon
            return reader.rows(_COUNT.format(reader.prefix, after, horizon))[0][0], horizon
        finally:
            events.stop()
            reader.close()

    def _subscriptions(self) -> dict[str, dict[str, Any]]:
        batches = SubscriptionReader(self._database, STORED_SUBSCRIPTIONS).read(InputPartition(None))
        return {
            row["id"]: {
                "subscription_id": row["id"],
                "endpoint": endpoint_of(row["target"]),
                "deleted": False,
                **{name: row[name] for name in ("tenant", "name", "pattern", "pool", "mode", "paused")},
            }
            for batch in batches
            for row in batch.to_pylist()
        }

    def _run(self, ended: Event, every_s: float) -> None:
        while not ended.is_set():
            try:
                self.add()
                warn_of_long_transaction(self._database)
            except Exception as error:
                if not ended.is_set():
                    log.warning("events, subscriptions and jobs were not added to the lake; they will be: %s", error)
            ended.wait(every_s)


def _changed(last: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    changed = [row for key, row in now.items() if key not in last or any(last[key][name] != row[name] for name in row)]
    gone = [row for key, row in last.items() if key not in now and not row["deleted"]]
    return [*changed, *({**row, "deleted": True} for row in gone)]


def _set_after(query: StreamingQuery, ended: Event) -> None:
    try:
        query.awaitTermination()
    except Exception as error:
        # Whoever started the query reports it.
        log.debug("the stream ended: %s", error)
    ended.set()

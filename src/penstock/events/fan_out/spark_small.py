"""Fans out in the driver's process while few events wait: their work takes less than Spark's part of a micro-batch.

It reads and stores as the stream does, from the first event that waits, in order. So it may do the same events as a
micro-batch at the same time: of each event one of the two creates the jobs, and the jobs of a group become visible in
order.
"""

import logging
from collections.abc import Callable
from contextlib import closing
from threading import Event, Thread
from typing import Any

import pyarrow
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from penstock.domain.retry import Backoff
from penstock.events.fan_out.columns import EVENT_COLUMNS
from penstock.events.fan_out.spark_plan import Planner
from penstock.events.fan_out.spark_task import KeptCounts, OpenedRepository, current_planner, kept
from penstock.spark.changes import DatabaseWatch
from penstock.spark.database import SparkDatabase
from penstock.spark.schemas import EVENTS, POSITION
from penstock.spark.sources.database_reader import reader_for
from penstock.spark.sources.stream_source import START, SpanPartition, StreamReader, WaitingOffset

log = logging.getLogger(__name__)
_SCHEMA = StructType([EVENTS[name] for name in (*EVENT_COLUMNS, POSITION)])
_SUBSCRIPTIONS = "SELECT id, definition FROM {}subscriptions ORDER BY id"
_NO_EVENTS = pyarrow.RecordBatch.from_pylist([], to_arrow_schema(_SCHEMA))
_FIRST_PAUSE_S = 0.5
_LAST_PAUSE_S = 10.0


class SmallBatches:
    """Fans out whenever up to `few_rows` events wait, and leaves a backlog to the stream."""

    def __init__(
        self, database: SparkDatabase, few_rows: int, on_batch: Callable[[KeptCounts], None] = lambda _: None
    ) -> None:
        self._database = database
        self._few_rows = few_rows
        self._on_batch = on_batch
        self.handled = 0
        """Events fanned out here."""

    def run_beside(self, query: StreamingQuery, jobs: OpenedRepository) -> None:
        """Fan out until a query ends; return when the first batch, perhaps an empty one, is done."""
        ended, ready = Event(), Event()
        Thread(target=_set_after, args=(query, ended), daemon=True).start()
        Thread(target=self._run, args=(jobs, ended, ready), name="penstock-small-batches", daemon=True).start()
        ready.wait()

    def _run(self, jobs: OpenedRepository, ended: Event, ready: Event) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, _LAST_PAUSE_S)
        while not ended.is_set():
            try:
                with closing(SmallBatchReader(self._database, self._few_rows)) as reader:
                    self._fan_out(reader, jobs, ended, ready, backoff)
            except Exception as error:
                backoff.failed()
                log.warning("events could not be fanned out; the next try is in %g s: %s", backoff.delay_s, error)
                ready.set()
                ended.wait(backoff.delay_s)

    def _fan_out(
        self, reader: "SmallBatchReader", jobs: OpenedRepository, ended: Event, ready: Event, backoff: Backoff
    ) -> None:
        reader.warm_up(jobs)
        with closing(DatabaseWatch(self._database)) as changes:
            while not ended.is_set():
                done = reader.fan_out(jobs)
                backoff.succeeded()
                ready.set()
                if any(done):
                    self.handled += done.events
                    self._on_batch(done)
                    changes.expect_more()
                else:
                    changes.wait(ended)


class SmallBatchReader:
    """Reads and fans out small batches, one after another."""

    def __init__(self, database: SparkDatabase, few_rows: int) -> None:
        self._database = database
        self._few_rows = few_rows
        self._source = StreamReader(database, "events", _SCHEMA)
        self._subscriptions = reader_for(database)
        self._stored: list[tuple[Any, ...]] | None = None
        self._planner: Planner | None = None
        self._start = WaitingOffset(START.position)

    def warm_up(self, jobs: OpenedRepository) -> None:
        """Let no events take the way of all others, so that the first ones find everything imported."""
        kept([_NO_EVENTS], self._current_planner(jobs), jobs, self._database)

    def fan_out(self, jobs: OpenedRepository) -> KeptCounts:
        """Fan out the events that wait, unless they are many."""
        outlook = self._source.outlook(self._start.place, self._few_rows + 1)
        if not outlook.any or outlook.last is not None:
            return KeptCounts()
        after = self._start.after(outlook, None)
        events = self._source.read(SpanPartition(self._start.place, after.end))
        done = kept(events, self._current_planner(jobs), jobs, self._database)
        self._start = after
        return done

    def close(self) -> None:
        """Close the connections."""
        self._source.stop()
        self._subscriptions.close()

    def _current_planner(self, jobs: OpenedRepository) -> Planner:
        """Return the planner of the subscriptions of this moment; it is built again only if they have changed."""
        # Before they are decoded: a change in between is found by the next batch.
        stored = self._subscriptions.rows(_SUBSCRIPTIONS.format(self._subscriptions.prefix))
        if self._planner is None or stored != self._stored:
            self._planner, self._stored = current_planner(jobs), stored
        return self._planner


def _set_after(query: StreamingQuery, ended: Event) -> None:
    try:
        query.awaitTermination()
    except Exception as error:
        # Whoever started the query reports it.
        log.debug("the stream ended: %s", error)
    ended.set()

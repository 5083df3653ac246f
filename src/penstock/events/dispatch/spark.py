"""Dispatch as a streaming job: each tick is a round, while this node leads.

The driver's desk: a thread with an event loop that leads or stands by, keeps house, and asks the database.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.cluster import OFF, RENEW_S, TTL_S, Alone, Standby, Terms, lease_for, running
from penstock.domain.ids import TsidFactory
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.edge.pause import pause
from penstock.events.dispatch.recovery import ChorePoller, Housekeeping, StaleQueuedJobPoller
from penstock.events.dispatch.retention import Retention
from penstock.events.dispatch.settings import Counts
from penstock.events.dispatch.spark_messages import DispatchSettings, Report
from penstock.events.dispatch.spark_round import DispatchRounds
from penstock.events.dispatch.spark_ticks import ticks
from penstock.events.errors import DispatchFailed
from penstock.events.store import SCHEDULER, Dialect, JobRepository, LaneOwner
from penstock.events.store.postgres import postgres_repository
from penstock.spark.database import SparkDatabase

Result = TypeVar("Result")

_ASK_S = 30.0
_STOP_S = 15.0


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the driver finds out whether it leads; the word and the times are the scheduler's."""

    standby: str = OFF
    ttl_s: float = TTL_S
    renew_s: float = RENEW_S


class Desk:
    """Leads by the scheduler's own lease, so that of all engines one publishes. Used from any thread."""

    def __init__(
        self, database: SparkDatabase, settings: DispatchSettings, lease: LeaseSettings, clock: Clock, ids: TsidFactory
    ) -> None:
        self._database = database
        self._settings = settings
        self._lease = lease
        self._clock = clock
        self._name = ids.next_id(clock.now_ms())
        self._jobs = _listening(database)
        self._opened: Future[asyncio.Event] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="dispatch-desk", daemon=True)
        self.counts = Counts()
        self.leadership: Standby | Alone = Alone()

    def open(self) -> None:
        """Open the database and contend for the lease; whatever keeps it from that is raised."""
        self._thread.start()
        self._opened.result(_ASK_S)

    def close(self) -> None:
        """Let the next one lead at once."""
        if self._loop is not None and self._opened.done() and self._opened.exception() is None:
            self._loop.call_soon_threadsafe(self._opened.result().set)
        self._thread.join(_STOP_S)

    def ask(self, question: Callable[[JobRepository], Coroutine[Any, Any, Result]]) -> Result:
        """What the database answers."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(question(self._jobs), self._loop).result(_ASK_S)

    def leads_within(self, within_s: float) -> bool:
        """Whether this node leads, now or in a moment."""
        if self.leadership.is_primary():
            return True
        assert self._loop is not None
        led = asyncio.run_coroutine_threadsafe(_in_time(self.leadership.becomes(True), within_s), self._loop)
        return led.result(within_s + _ASK_S)

    def stand_down(self) -> None:
        """Another node leads."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.leadership.stand_down)

    def _work(self) -> None:
        try:
            asyncio.run(self._lead())
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _lead(self) -> None:
        self._loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        await self._jobs.open(self._clock.now_ms())
        try:
            async with lease_for(self._lease.standby, self._jobs, self._clock, SCHEDULER, self._name) as lease:
                standby = None
                if lease is not None:
                    standby = Standby(lease, ttl_s=self._lease.ttl_s, renew_s=self._lease.renew_s)
                self.leadership = standby or Alone()
                terms = Terms(self.leadership, self._new_term, self.counts, pause)
                async with running(standby), running(terms):
                    self._opened.set_result(stop)
                    await stop.wait()
        finally:
            await self._jobs.close()

    def _new_term(self) -> Housekeeping:
        jobs, clock, counts = self._jobs, self._clock, self.counts
        scheduling, token = self._settings.scheduler, self.leadership.token
        return Housekeeping(
            ChorePoller(jobs, clock, counts, self._settings.chores_every_s, pause),
            StaleQueuedJobPoller(jobs, clock, scheduling, counts, pause, token=token),
            Retention(jobs, scheduling, counts, clock, pause),
        )


def _listening(database: SparkDatabase) -> JobRepository:
    """The jobs as a scheduler opens them: called when others make some."""
    if database.dialect is Dialect.SQLITE:
        return database.repository()
    return postgres_repository(database.url, schema=database.schema, listen=True)


async def _in_time(coming: Awaitable[None], within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await coming
    except TimeoutError:
        return False
    return True


NAME = "dispatch"

_QUERY_ID = "sql.streaming.queryId"
_FIRST_PAUSE_S = 0.25
_STAND_BY_S = 1.0
_LEAD_ONCE_S = 10.0
_MOST_COUNTED = 100_000
# No attempt at a round publishes later than that: within the time that queues deduplicate for, so that an attempt
# which Spark has given up on does no harm.
_LONGEST_ROUND_S = 120.0


class DispatchQuery:
    """PENDING jobs to the queue; `once` publishes what may go now, and ends."""

    name = NAME

    def __init__(
        self,
        rounds: DispatchRounds,
        lease: LeaseSettings | None = None,
        *,
        once: bool = False,
        clock: Clock | None = None,
        ids: TsidFactory | None = None,
    ) -> None:
        self._rounds = rounds
        self._lease = lease or LeaseSettings()
        self._once = once
        self._clock = clock or SystemClock()
        self._ids = ids or process_ids()
        self._desk: Desk | None = None
        self._backoff = Backoff(_FIRST_PAUSE_S, rounds.settings.scheduler.poll_interval_s)

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Lead or stand by, and start the query; with it ends the leadership."""
        desk = Desk(self._rounds.database, self._rounds.settings, self._lease, self._clock, self._ids)
        desk.open()
        try:
            if self._once:
                self._prepare(desk)
            stopped = threading.Event()
            query = self._query(spark, checkpoint, desk, stopped)
        except BaseException:
            desk.close()
            raise
        self._desk = desk
        threading.Thread(target=self._close_after, args=(query, desk, stopped), daemon=True).start()
        return query

    def lag(self) -> int | None:
        """How many jobs wait to be published, counted up to 100,000; None while it does not run."""
        desk = self._desk
        return None if desk is None else desk.ask(lambda jobs: jobs.lanes.count_ready(_MOST_COUNTED))

    def round(self, spark: SparkSession, desk: Desk, owner: str) -> Report:
        """One round in an owner's name, if this node leads; a repeated one takes over what the first had claimed."""
        now_ms = self._clock.now_ms()
        token = desk.leadership.token
        settings = self._rounds.settings
        # A queue in trouble gets one small batch at a time.
        most = settings.scheduler.batch_size if self._backoff.delay_s else settings.most_jobs
        parts = settings.tasks or spark.sparkContext.defaultParallelism
        ranges = desk.ask(lambda jobs: jobs.lanes.awake_ranges(owner, most, parts))
        if not ranges:
            return Report()
        until_ms = now_ms + int(_LONGEST_ROUND_S * 1000)
        call = self._rounds.call(ranges, LaneOwner(owner, token), now_ms=now_ms, until_ms=until_ms, most=most)
        report = self._rounds.run(spark, call)
        self._note(report, desk)
        return report

    def _query(self, spark: SparkSession, checkpoint: str, desk: Desk, stopped: threading.Event) -> StreamingQuery:
        def dispatch(_: DataFrame, batch: int) -> None:
            query_id = spark.sparkContext.getLocalProperty(_QUERY_ID)
            if desk.leads_within(_STAND_BY_S) and not stopped.wait(self._backoff.delay_s):
                self.round(spark, desk, f"{query_id}/{batch}")

        stream = spark.readStream.format(ticks(spark, self._rounds.database)).load()
        writer = stream.writeStream.foreachBatch(dispatch).queryName(self.name)
        if self._once:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", checkpoint).start()

    def _prepare(self, desk: Desk) -> None:
        if not desk.leads_within(_LEAD_ONCE_S):
            raise DispatchFailed(
                "another node leads, so nothing is published from here; run it there, or stop that one"
            )
        desk.ask(lambda jobs: jobs.do_chores(self._clock.now_ms()))

    def _note(self, report: Report, desk: Desk) -> None:
        counts = desk.counts
        counts.claimed += report.claimed
        counts.published += report.published
        counts.publish_failures += report.failed
        counts.lag_s = report.lag_ms / 1000
        counts.trouble = report.trouble
        if report.is_stale:
            desk.stand_down()
        if report.in_trouble:
            self._backoff.failed()
        elif report.published:
            self._backoff.succeeded()
        if self._once and (report.in_trouble or report.is_stale):
            raise DispatchFailed(report.trouble or "another node leads now")

    def _close_after(self, query: StreamingQuery, desk: Desk, stopped: threading.Event) -> None:
        # What it fails with is for whoever started it.
        with suppress(Exception):
            query.awaitTermination()
        stopped.set()
        self._desk = None
        desk.close()

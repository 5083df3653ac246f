"""Dispatch as a streaming job: each tick is a round, while this node leads."""

import threading
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.jobs.lane_claiming import LaneOwner
from penstock.pipeline.dispatch.desk import Desk, LeaseSettings
from penstock.pipeline.dispatch.errors import DispatchFailed
from penstock.pipeline.dispatch.report import Report
from penstock.pipeline.dispatch.round import Rounds
from penstock.pipeline.dispatch.tick_source import ticks
from penstock.scheduler.backoff import Backoff

NAME = "dispatch"

_QUERY_ID = "sql.streaming.queryId"
_FIRST_PAUSE_S = 0.25
_STAND_BY_S = 1.0
_LEAD_ONCE_S = 10.0
_MOST_COUNTED = 100_000
# No attempt at a round publishes later than that: within the time that queues deduplicate for, so that an attempt
# which Spark has given up on does no harm.
_LONGEST_ROUND_S = 120.0


class DispatchJob:
    """PENDING jobs to the queue; `once` publishes what may go now, and ends."""

    name = NAME

    def __init__(
        self,
        rounds: Rounds,
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

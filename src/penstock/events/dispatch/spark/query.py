"""The streaming query of dispatch: each tick is a round while this node leads.

A tick comes when many lanes are awake. While few are, the driver publishes from them without Spark (decision 0028).
"""

import threading
from collections import Counter
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.domain.ids import TsidFactory
from penstock.domain.pace.credit import CreditBook
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.node import process_ids
from penstock.events.dispatch.spark.leader import DriverLeader, LeaseSettings
from penstock.events.dispatch.spark.messages import DispatchReport
from penstock.events.dispatch.spark.round import DispatchRounds
from penstock.events.errors import DispatchFailed
from penstock.events.store import LaneOwner
from penstock.spark.sources.ticks import ticks

NAME = "dispatch"
_QUERY_ID = "sql.streaming.queryId"
_FIRST_PAUSE_S = 0.25
_STAND_BY_S = 1.0
_LEAD_ONCE_S = 10.0
_MOST_COUNTED = 100_000
# Shorter than the deduplication window of queues, so that an attempt which Spark abandoned cannot publish twice.
_LONGEST_ROUND_S = 120.0


class DispatchQuery:
    """Publishes PENDING jobs to the queue; with `once` it publishes what is ready now and ends."""

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
        self._leader: DriverLeader | None = None
        self._credit = CreditBook(rounds.default_pool, rests=False)
        self._backoff = Backoff(_FIRST_PAUSE_S, rounds.settings.scheduler.poll_interval_s)

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Lead or stand by, and start the query; leadership ends with the query."""
        rounds = self._rounds
        publishes = not self._once and rounds.settings.few_lanes > 0
        leader = DriverLeader(
            rounds.database,
            rounds.settings,
            self._lease,
            self._clock,
            self._ids,
            rounds.destination,
            publishes=publishes,
        )
        leader.open()
        self._credit = CreditBook(rounds.default_pool, rests=False, in_hand=leader.counts.in_hand)
        try:
            if self._once:
                self._prepare(leader)
            stopped = threading.Event()
            query = self._query(spark, checkpoint, leader, stopped)
        except BaseException:
            leader.close()
            raise
        self._leader = leader
        threading.Thread(target=self._close_after, args=(query, leader, stopped), daemon=True).start()
        return query

    def lag(self) -> int | None:
        """Return how many jobs wait to be published, counted up to 100,000; None while it does not run."""
        leader = self._leader
        return None if leader is None else leader.ask(lambda jobs: jobs.lanes.count_ready(_MOST_COUNTED))

    def handled(self) -> int:
        """Return how many jobs were published since the query started; its ticks have no rows."""
        leader = self._leader
        return 0 if leader is None else leader.counts.published

    def round(self, spark: SparkSession, leader: DriverLeader, owner: str) -> DispatchReport:
        """Run one round for an owner; a repeated round takes over the claims of the first."""
        now_ms = self._clock.now_ms()
        token = leader.leadership.token
        settings = self._rounds.settings
        # A failing queue gets one small batch at a time.
        most = settings.scheduler.batch_size if self._backoff.delay_s else settings.most_jobs
        credit = self._credit

        ranges = leader.ask(lambda jobs: jobs.lanes.awake_ranges(owner, now_ms, most, credit))
        if not ranges:
            return DispatchReport()
        until_ms = now_ms + int(_LONGEST_ROUND_S * 1000)
        spec = self._rounds.spec(ranges, LaneOwner(owner, token), now_ms=now_ms, until_ms=until_ms)
        granted = Counter({span.stream: span.jobs for span in ranges if span.stream is not None})
        leader.take(granted)
        try:
            report = self._rounds.run(spark, spec)
        finally:
            leader.release(granted)
        self._note(report, leader)
        return report

    def _query(
        self, spark: SparkSession, checkpoint: str, leader: DriverLeader, stopped: threading.Event
    ) -> StreamingQuery:
        def dispatch(_: DataFrame, batch: int) -> None:
            query_id = spark.sparkContext.getLocalProperty(_QUERY_ID)
            if leader.leads_within(_STAND_BY_S) and not stopped.wait(self._backoff.delay_s):
                self.round(spark, leader, f"{query_id}/{batch}")

        few_lanes = 0 if self._once else self._rounds.settings.few_lanes
        source = ticks(spark, self._rounds.database, few_lanes, self._rounds.default_pool)
        stream = spark.readStream.format(source).load()
        writer = stream.writeStream.foreachBatch(dispatch).queryName(self.name)
        if self._once:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", checkpoint).start()

    def _prepare(self, leader: DriverLeader) -> None:
        if not leader.leads_within(_LEAD_ONCE_S):
            raise DispatchFailed(
                "another node leads, so this one publishes nothing: run the command there, or stop that node"
            )
        leader.ask(lambda jobs: jobs.do_chores(self._clock.now_ms()))

    def _note(self, report: DispatchReport, leader: DriverLeader) -> None:
        counts = leader.counts
        counts.claimed += report.claimed
        counts.published += report.published
        counts.publish_failures += report.failed
        counts.lag_s = report.lag_ms / 1000
        counts.trouble = report.trouble
        if report.is_stale:
            leader.stand_down()
        if report.in_trouble:
            self._backoff.failed()
        elif report.published:
            self._backoff.succeeded()
        if self._once and (report.in_trouble or report.is_stale):
            raise DispatchFailed(report.trouble or "another node leads now")

    def _close_after(self, query: StreamingQuery, leader: DriverLeader, stopped: threading.Event) -> None:
        # The failure is reported to whoever started the query.
        with suppress(Exception):
            query.awaitTermination()
        stopped.set()
        self._leader = None
        leader.close()

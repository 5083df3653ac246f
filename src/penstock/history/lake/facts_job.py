"""The facts job: a streaming query that adds each micro-batch of attempts to the lake, then to the statistics.

Each table of the lake, and the statistics, know the last attempt they hold. So a batch that is repeated, after a crash
or because its checkpoint was lost, adds to each only what it lacks. On one machine the driver counts attempts for the
statistics itself, every few seconds, and the lake gets fewer and larger batches (decision 0028).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.cluster import running
from penstock.domain.errors import PenstockError, Unavailable
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.pause import pause
from penstock.events.statistics import Counted, InlineCounter, StatisticsPlace
from penstock.events.store import KEPT_MS, Statistics
from penstock.history.errors import RowsForgotten
from penstock.history.lake.facts import as_facts, with_flaws, with_origins
from penstock.history.lake.lake import Lake, open_lake
from penstock.history.lake.rows import lake_rows
from penstock.history.lake.schema import DELIVERIES
from penstock.history.lake.sync import LakeSync
from penstock.history.lake.tally import Tally, tally
from penstock.history.lake.writer import LakeTarget, LakeWrite, write_attempts
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.valid_rows import SetAside, set_aside
from penstock.spark.tables import Tables

log = logging.getLogger(__name__)

TIDY_EVERY = 100
"""Batches between two checks whether a day needs compacting."""

_TRIES = 3
Result = TypeVar("Result")


class FactsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the facts job runs; with `once` it adds the existing attempts and ends.

    On one machine, a batch waits until it has `least_rows`, or for `longest_wait_s`.
    """

    lake: str
    trigger_ms: int = 10_000
    most_rows: int = 100_000
    least_rows: int = 100_000
    longest_wait_s: int = 60
    keep_days: int = 0
    """How many days stay in the lake, today included; 0 means all."""
    once: bool = False


class FactsJob:
    """Adds attempts to the lake and the statistics as they arrive."""

    name = "facts"

    def __init__(self, database: SparkDatabase, settings: FactsSettings, clock: Clock | None = None) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock or SystemClock()

    def start(self, spark: SparkSession, checkpoint: str) -> StreamingQuery:
        """Start the query."""
        settings = self._settings
        lake = open_lake(spark, settings.lake)
        on_one_machine = not settings.once and str(spark.sparkContext.master).startswith("local")
        batches = FactsBatch(self._database, lake, self._clock, counts=not on_one_machine)
        # The tables must be there, and as this version has them, before anything reads them.
        batches.counted_upto()

        def add(attempts: DataFrame, number: int) -> None:
            rows = batches.add(attempts)
            log.info("batch %d: %d attempts", number, rows)
            if number % TIDY_EVERY == TIDY_EVERY - 1:
                self._tidy(lake)

        writer = (
            Tables(spark, self._database)
            .attempt_stream(
                settings.most_rows,
                least_rows=min(settings.least_rows, settings.most_rows) if on_one_machine else 1,
                longest_wait_s=settings.longest_wait_s,
            )
            .drop("response")
            .writeStream.queryName(self.name)
            .option("checkpointLocation", checkpoint)
            .foreachBatch(add)
        )
        if settings.keep_days:
            self._tidy(lake)
        sync = LakeSync(spark, self._database, lake, self._clock)
        if settings.once:
            sync.add()
            return writer.trigger(availableNow=True).start()
        query = writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()
        sync.run_beside(query, settings.longest_wait_s)
        if on_one_machine:
            DriverCounter(self._database, self._clock).run_beside(query)
        return query

    def _tidy(self, lake: Lake) -> None:
        first = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC) - timedelta(days=self._settings.keep_days - 1)
        try:
            lake.tidy(first.date().isoformat() if self._settings.keep_days else None)
        except PenstockError as error:
            # The facts are safe, only slower to read.
            log.warning("the lake was not compacted: %s", error.message)

    def lag(self) -> int | None:
        """Return None: the number of waiting attempts is not known without counting them."""
        return None

    def handled(self) -> int:
        """Return 0: every attempt comes in a micro-batch."""
        return 0


class FactsBatch:
    """Adds batches of attempts. Spark's tasks write the files, and count if they have to; the driver commits.

    Without `counts`, it leaves the statistics to others.
    """

    def __init__(self, database: SparkDatabase, lake: Lake, clock: Clock, *, counts: bool = True) -> None:
        self._counts = counts
        self._database = database
        self._lake = lake
        self._clock = clock

    def add(self, attempts: DataFrame) -> int:
        """Add a batch; return how many attempts were new to the lake or to the statistics."""
        for _ in range(_TRIES):
            with suppress(RowsForgotten):
                return self._add_batch(attempts)
        return self._add_batch(attempts)

    def _add_batch(self, attempts: DataFrame) -> int:
        now_ms = self._clock.now_ms()
        targets = self._lake.targets()
        facts = as_facts(with_origins(with_flaws(attempts, now_ms), self._database))
        if not self._counts:
            return self._keep(facts, targets)
        facts = facts.persist()
        try:
            known = self.counted_upto()
            new = self._tally(facts, known, now_ms)
            kept = self._keep(facts, targets)
            if new.upto > known:
                self._count(facts, new, known, now_ms)
            return max(kept, new.facts + new.flawed)
        finally:
            facts.unpersist()

    def _keep(self, facts: DataFrame, targets: Sequence[LakeTarget]) -> int:
        written = write_attempts(lake_rows(facts), targets)
        # Before the lake goes on, so that each attempt is in it or set aside.
        self._set_aside(written)
        self._lake.add(written, targets)
        return written.rows(DELIVERIES.name) + written.flawed

    def _count(self, facts: DataFrame, new: Tally, known: StatisticsPlace, now_ms: int) -> None:
        for _ in range(_TRIES):
            after = self.counted_upto()
            if new.upto <= after:
                return
            lacking = new if after == known else self._tally(facts, after, now_ms)
            if self._add(lacking, after, now_ms):
                return
        raise Unavailable("another engine counts attempts, too: run only one, Spark or inline")

    def _add(self, lacking: Tally, after: StatisticsPlace, now_ms: int) -> bool:
        counted = Counted(
            upto=lacking.upto,
            minutes=lacking.minutes,
            leaders=lacking.leaders,
            rows=lacking.facts,
            set_aside=lacking.flawed,
            repaired=lacking.repaired,
        )
        return self._ask(lambda statistics: statistics.add(counted, after, now_ms))

    def _tally(self, facts: DataFrame, after: StatisticsPlace, now_ms: int) -> Tally:
        # Minutes beyond the retention are not counted.
        return tally(facts, after, now_ms - KEPT_MS)

    def _set_aside(self, new: LakeWrite) -> None:
        if new.flawed:
            set_aside(self._database, [SetAside("attempts", key, flaw) for key, flaw in new.flaws])
            log.warning("%d attempts have impossible values and were set aside", new.flawed)

    def counted_upto(self) -> StatisticsPlace:
        """Return the last attempt in the statistics; a database that is new or older is brought up to date."""

        async def upto(statistics: Statistics) -> StatisticsPlace:
            return (await statistics.progress()).upto

        return self._ask(upto)

    def _ask(self, query: Callable[[Statistics], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            repository = self._database.repository()
            await repository.open(self._clock.now_ms())
            try:
                return await query(repository.statistics)
            finally:
                await repository.close()

        return asyncio.run(run())


class DriverCounter:
    """Counts attempts for the statistics as the inline engine does, in a thread of the driver."""

    def __init__(self, database: SparkDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def run_beside(self, query: StreamingQuery) -> None:
        """Count until a query ends; end the query and raise the reason if the database cannot be opened."""
        opened: Future[None] = Future()
        Thread(target=self._run, args=(query, opened), name="penstock-statistics", daemon=True).start()
        try:
            opened.result()
        except Exception:
            query.stop()
            raise

    def _run(self, query: StreamingQuery, opened: Future[None]) -> None:
        try:
            asyncio.run(self._count(query, opened))
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    async def _count(self, query: StreamingQuery, opened: Future[None]) -> None:
        repository = self._database.repository()
        await repository.open(self._clock.now_ms())
        opened.set_result(None)
        try:
            async with running(InlineCounter(repository.statistics, self._clock, pause)):
                # Whoever started the query reports its failure.
                with suppress(Exception):
                    await asyncio.to_thread(query.awaitTermination)
        finally:
            await repository.close()

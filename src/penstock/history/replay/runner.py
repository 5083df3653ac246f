"""Runs a replay from the driver: counts it, starts or continues it, and watches it until it ends."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.delivery import CourierSettings
from penstock.domain.replay import Replay, ReplayProgress, ReplaySelection
from penstock.edge.clock import Clock
from penstock.history.errors import InvalidQuery, ReplayBroken
from penstock.history.lake.lake import open_lake
from penstock.history.lake.views import query
from penstock.history.replay.selection import (
    COLUMNS,
    live_groups,
    on_their_way,
    originals,
    part_counts,
    planned,
    selected,
)
from penstock.history.replay.task import ReplayRun, replays_in, task_error
from penstock.history.replay.task import replay as deliver
from penstock.history.replay.timetable import timetable
from penstock.spark.database import SparkDatabase
from penstock.spark.errors import reason_of
from penstock.spark.tables import Tables

POLL_S = 0.5
JOB_ID = "job_id"
"""The column by which a query names jobs."""

OnProgress = Callable[[ReplayProgress], None]
_NO_PART, _LIVE = -1, -2


class Count(msgspec.Struct, frozen=True):
    """What a replay would deliver: jobs by part, their groups, and those left out because they are on their way.

    `live_groups` of the groups have ordered jobs on their way, of whatever selection.
    """

    by_part: tuple[int, ...]
    groups: int
    on_their_way: int
    live_groups: int = 0

    @property
    def jobs(self) -> int:
        """Return the number of jobs that would be delivered."""
        return sum(self.by_part)


class Ended(msgspec.Struct, frozen=True):
    """How a run of a replay ended; `stopped` if it was asked to stop."""

    replay: Replay
    progress: ReplayProgress
    stopped: bool


class ReplayRunner:
    """Runs replays of one database on one Spark session."""

    def __init__(self, spark: SparkSession, database: SparkDatabase, clock: Clock, lake: str = "") -> None:
        self._spark = spark
        self._lake = lake
        self._named: dict[str, DataFrame] = {}
        self._database = database
        self._tables = Tables(spark, database)
        self._clock = clock
        self._parts = spark.sparkContext.defaultParallelism

    def count(self, selection: ReplaySelection, as_of_ms: int) -> Count:
        """Count what a replay would deliver. Nothing is changed."""
        left_out = on_their_way(self._jobs(), selection, self._named_by(selection)).agg(
            f.lit(_NO_PART), f.count("id"), f.lit(0)
        )
        live = live_groups(self._jobs(), self._selected(selection, as_of_ms))
        lively = live.agg(f.lit(_LIVE), f.lit(0), f.count("group_key"))
        counts = part_counts(self._selected(selection, as_of_ms), self._parts).union(left_out).union(lively)
        rows = {row["part"]: row for row in counts.collect()}
        return Count(
            tuple(rows[part]["jobs"] if part in rows else 0 for part in range(self._parts)),
            sum(row["groups"] for part, row in rows.items() if part >= 0),
            rows[_NO_PART]["jobs"],
            rows[_LIVE]["groups"],
        )

    def run(self, replay: Replay, count: Count, direct: CourierSettings, stop: Event, on_progress: OnProgress) -> Ended:
        """Run a replay until it is complete or `stop` is set; ReplayBroken if its tasks fail."""
        with watched(self._database, replay.id, self._clock, stop, on_progress):
            try:
                jobs = self._selected(replay.request.selection, replay.requested_at_ms)
                deliver(planned(jobs, self._parts), self._replay_run(replay, count, direct))
            except (Py4JError, PySparkException) as error:
                raise ReplayBroken(replay.id, task_error(error)) from error
        return asyncio.run(self._ended(replay))

    async def _ended(self, replay: Replay) -> Ended:
        async with replays_in(self._database, self._clock) as replays:
            stopped = (await replays.get(replay.id)).stop_asked
            if not stopped:
                await replays.end(replay)
            return Ended(replay, await replays.progress(replay.id), stopped)

    def _selected(self, selection: ReplaySelection, as_of_ms: int) -> DataFrame:
        return selected(self._jobs, selection, as_of_ms, self._named_by(selection))

    def _named_by(self, selection: ReplaySelection) -> DataFrame | None:
        """Return the jobs that the query of a selection finds; it is asked once, so that a run counts what it does."""
        sql = selection.sql
        if sql is None:
            return None
        if sql not in self._named:
            found = query(open_lake(self._spark, self._lake), sql)
            if JOB_ID not in found.columns:
                raise InvalidQuery(f"the query must have a column {JOB_ID}, but has {', '.join(found.columns)}")
            named = originals(found).persist()
            try:
                named.count()
            except PySparkException as error:
                raise InvalidQuery(reason_of(error)) from error
            self._named[sql] = named
        return self._named[sql]

    def _jobs(self) -> DataFrame:
        # A new frame each time, because the scans of one frame share their pushed filters.
        return self._tables.jobs(COLUMNS)

    def _replay_run(self, replay: Replay, count: Count, direct: CourierSettings) -> ReplayRun:
        per_s = replay.request.per_s
        return ReplayRun(
            database=self._database,
            replay_id=replay.id,
            run=replay.run,
            direct=direct if replay.request.direct else None,
            timetable=None if per_s is None else timetable(self._clock.now_ms(), per_s, count.by_part),
        )


@contextmanager
def watched(
    database: SparkDatabase, replay_id: str, clock: Clock, stop: Event, on_progress: OnProgress
) -> Iterator[None]:
    """Report the progress of a replay while the block runs, and ask its tasks to stop once `stop` is set."""
    ended = Event()
    thread = Thread(
        target=lambda: asyncio.run(_watch(database, replay_id, clock, stop, ended, on_progress)), name="watch-replay"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


async def _watch(
    database: SparkDatabase, replay_id: str, clock: Clock, stop: Event, ended: Event, on_progress: OnProgress
) -> None:
    asked = False
    async with replays_in(database, clock) as replays:
        while not await asyncio.to_thread(ended.wait, POLL_S):
            if stop.is_set() and not asked:
                asked = True
                await replays.stop(replay_id)
            on_progress(await replays.progress(replay_id))

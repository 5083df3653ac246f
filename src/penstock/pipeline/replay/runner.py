"""A replay from the driver: count, begin or go on, and watch until it ends."""

import asyncio
from threading import Event

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.edge.clock import Clock
from penstock.events.replay import Replay, ReplayProgress, ReplaySelection
from penstock.pipeline.database import Database
from penstock.pipeline.replay.errand import DirectSettings, Errand, replays_in
from penstock.pipeline.replay.errors import ReplayBroken
from penstock.pipeline.replay.failure import told_by_tasks
from penstock.pipeline.replay.parts import part_counts, planned
from penstock.pipeline.replay.selection import COLUMNS, on_their_way, selected
from penstock.pipeline.replay.sink import replay as deliver
from penstock.pipeline.replay.timetable import timetable
from penstock.pipeline.replay.watch import OnProgress, watched
from penstock.pipeline.tables import Tables

_NO_PART = -1


class Count(msgspec.Struct, frozen=True):
    """What a replay would deliver: jobs by part, their groups, and what is left out as it is on its way."""

    by_part: tuple[int, ...]
    groups: int
    on_their_way: int

    @property
    def jobs(self) -> int:
        """All that would be delivered."""
        return sum(self.by_part)


class Ended(msgspec.Struct, frozen=True):
    """How a run of a replay ended; `stopped` if somebody asked it to."""

    replay: Replay
    progress: ReplayProgress
    stopped: bool


class ReplayRunner:
    """Runs replays of one database on one Spark session."""

    def __init__(self, spark: SparkSession, database: Database, clock: Clock) -> None:
        self._database = database
        self._tables = Tables(spark, database)
        self._clock = clock
        self._parts = spark.sparkContext.defaultParallelism

    def count(self, selection: ReplaySelection, as_of_ms: int) -> Count:
        """Look what a replay would deliver; nothing is changed."""
        left_out = on_their_way(self._jobs(), selection).agg(f.lit(_NO_PART), f.count("id"), f.lit(0))
        counts = part_counts(self._selected(selection, as_of_ms), self._parts).union(left_out)
        rows = {row["part"]: row for row in counts.collect()}
        return Count(
            tuple(rows[part]["jobs"] if part in rows else 0 for part in range(self._parts)),
            sum(row["groups"] for row in rows.values()),
            rows[_NO_PART]["jobs"],
        )

    def run(self, replay: Replay, count: Count, direct: DirectSettings, stop: Event, on_progress: OnProgress) -> Ended:
        """Do a run that was begun, until it is through or `stop` is set; ReplayBroken if its tasks fail."""
        jobs = planned(self._selected(replay.order.selection, replay.requested_at_ms), self._parts)
        with watched(self._database, replay.id, self._clock, stop, on_progress):
            try:
                deliver(jobs, self._errand(replay, count, direct))
            except (Py4JError, PySparkException) as error:
                raise ReplayBroken(replay.id, told_by_tasks(error)) from error
        return asyncio.run(self._ended(replay))

    async def _ended(self, replay: Replay) -> Ended:
        async with replays_in(self._database, self._clock) as replays:
            stopped = (await replays.get(replay.id)).stop_asked
            if not stopped:
                await replays.end(replay)
            return Ended(replay, await replays.progress(replay.id), stopped)

    def _selected(self, selection: ReplaySelection, as_of_ms: int) -> DataFrame:
        return selected(self._jobs(), selection, as_of_ms)

    def _jobs(self) -> DataFrame:
        # Anew each time: scans of one load share what was pushed down, and one would read with the other's filters.
        return self._tables.jobs(COLUMNS)

    def _errand(self, replay: Replay, count: Count, direct: DirectSettings) -> Errand:
        per_s = replay.order.per_s
        return Errand(
            database=self._database,
            replay_id=replay.id,
            run=replay.run,
            direct=direct if replay.order.direct else None,
            timetable=None if per_s is None else timetable(self._clock.now_ms(), per_s, count.by_part),
        )

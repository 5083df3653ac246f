"""A replay from the driver: count, begin or go on, and watch until it ends.

Watching a replay from a thread of its own, while the driver's main thread waits for Spark.

Which jobs a replay takes, as DataFrames of jobs.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.domain.ids import COPY_JOINT
from penstock.domain.job_state import JobStatus
from penstock.domain.order import DEFAULT_GROUP
from penstock.domain.replay import Replay, ReplayProgress, ReplaySelection
from penstock.edge.clock import Clock
from penstock.history.errors import ReplayBroken
from penstock.history.replay.rounds import part_counts, planned
from penstock.history.replay.task import DirectSettings, Errand, replays_in, told_by_tasks
from penstock.history.replay.task import replay as deliver
from penstock.history.replay.timetable import timetable
from penstock.spark.database import SparkDatabase
from penstock.spark.tables import Tables

LOOK_S = 0.5

OnProgress = Callable[[ReplayProgress], None]


@contextmanager
def watched(
    database: SparkDatabase, replay_id: str, clock: Clock, stop: Event, on_progress: OnProgress
) -> Iterator[None]:
    """Tell how far a replay is while the block runs, and ask its tasks to stop once `stop` is set."""
    over = Event()
    thread = Thread(
        target=lambda: asyncio.run(_watch(database, replay_id, clock, stop, over, on_progress)), name="watch-replay"
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _watch(
    database: SparkDatabase, replay_id: str, clock: Clock, stop: Event, over: Event, on_progress: OnProgress
) -> None:
    asked = False
    async with replays_in(database, clock) as replays:
        while not await asyncio.to_thread(over.wait, LOOK_S):
            if stop.is_set() and not asked:
                asked = True
                await replays.stop(replay_id)
            on_progress(await replays.progress(replay_id))


_ON_THEIR_WAY = (JobStatus.PENDING, JobStatus.QUEUED, JobStatus.PROCESSING)
_POSITION = ("sequence", "created_at_ms", "id")

COLUMNS = ("group_key", *_POSITION, "group_name", "subscription_id", "type", "status", "finished_at_ms")
"""What has to be known of jobs to select them."""


def selected(jobs: Callable[[], DataFrame], selection: ReplaySelection, as_of_ms: int) -> DataFrame:
    """The jobs to deliver once more: `id`, `group_key` and what orders them within it. `jobs` loads the table.

    Only what was finished at `as_of_ms`: so a replay that goes on later selects the same. Of a job and its copies, the
    last alone (`jobs.replays.last_copies`).
    """
    found = _finished(jobs(), selection, as_of_ms)
    # Grouping takes ten times as long as the scan, and most selections have no copies.
    if not _finished(jobs(), selection, as_of_ms).where(f.col("id").contains(COPY_JOINT)).isEmpty():
        found = _last_copies(found)
    return found.select("group_key", *_POSITION)


def _finished(jobs: DataFrame, selection: ReplaySelection, as_of_ms: int) -> DataFrame:
    finished = fitting(jobs, selection).where(f.col("status").isin(*selection.statuses))
    finished = finished.where(f.col("finished_at_ms") <= as_of_ms)
    if selection.failed_since_ms is None:
        return finished
    return finished.where(f.col("finished_at_ms") >= selection.failed_since_ms)


def on_their_way(jobs: DataFrame, selection: ReplaySelection) -> DataFrame:
    """The jobs that fit but are not over: they are delivered anyway, and left out."""
    return fitting(jobs, selection).where(f.col("status").isin(*_ON_THEIR_WAY)).select("id")


def fitting(jobs: DataFrame, selection: ReplaySelection) -> DataFrame:
    """The jobs that match by time, subscription, type and key, whatever their status."""
    exact = {"subscription_id": selection.subscription_id, "type": selection.type, "group_key": selection.group_key}
    conditions: list[Column] = [f.col(name) == value for name, value in exact.items() if value is not None]
    if selection.from_ms is not None:
        conditions.append(f.col("created_at_ms") >= selection.from_ms)
    if selection.to_ms is not None:
        conditions.append(f.col("created_at_ms") < selection.to_ms)
    if selection.key is not None:
        named = f.col("group_name") == selection.key
        conditions.append(named | f.col("group_name").isNull() if selection.key == DEFAULT_GROUP else named)
    for condition in conditions:
        jobs = jobs.where(condition)
    return jobs


def _last_copies(jobs: DataFrame) -> DataFrame:
    """`jobs.replays.last_copies` on a DataFrame."""
    original = f.substring_index("id", COPY_JOINT, 1)
    return jobs.groupBy(original.alias("original")).agg(
        *(f.max_by(name, "id").alias(name) for name in ("group_key", *_POSITION))
    )


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

    def __init__(self, spark: SparkSession, database: SparkDatabase, clock: Clock) -> None:
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
        with watched(self._database, replay.id, self._clock, stop, on_progress):
            try:
                jobs = self._selected(replay.request.selection, replay.requested_at_ms)
                deliver(planned(jobs, self._parts), self._errand(replay, count, direct))
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
        return selected(self._jobs, selection, as_of_ms)

    def _jobs(self) -> DataFrame:
        # Anew each time: scans of one load share what was pushed down, and one would read with the other's filters.
        return self._tables.jobs(COLUMNS)

    def _errand(self, replay: Replay, count: Count, direct: DirectSettings) -> Errand:
        per_s = replay.request.per_s
        return Errand(
            database=self._database,
            replay_id=replay.id,
            run=replay.run,
            direct=direct if replay.request.direct else None,
            timetable=None if per_s is None else timetable(self._clock.now_ms(), per_s, count.by_part),
        )

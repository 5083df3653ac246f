"""The work of one task of a replay: delivers or copies its part in the order in which the jobs come.

It runs in a sink, because a plan with side effects would run them once per action, and partly for every look at its
rows.
"""

import asyncio
import re
from collections.abc import Callable, Iterator

import msgspec
import pyarrow
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.delivery import Breakers, Courier, CourierSettings, open_courier
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.pause import pause
from penstock.events.store import ReplayPart, Replays
from penstock.history.replay.delivery import JobDelivery, OutcomeWriter
from penstock.history.replay.group_delivery import GroupDelivery
from penstock.history.replay.selection import PART
from penstock.history.replay.timetable import ReplayPace, Timetable
from penstock.spark.database import SparkDatabase

POLL_S = 1.0
"""How often a task that has nothing to record asks whether it should stop."""

KNOWN_FOR_MS = 5 * SECOND_MS
"""How long subscriptions are used before they are read again."""

FORMAT = "penstock_replay"
AT_A_TIME = 250
_RAISED = re.compile(r"^(?:penstock(?:\.\w+)*\.)(\w+: .+)$", re.MULTILINE)
_MOST_CHARS = 300
NextIds = Callable[[], list[str]]


class ReplayRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a replay: directly or through the queue, at the pace of a timetable or as fast as possible."""

    database: SparkDatabase
    replay_id: str
    run: int
    direct: CourierSettings | None = None
    timetable: Timetable | None = None


def replay(planned: DataFrame, run: ReplayRun) -> None:
    """Deliver planned jobs; return when all tasks have ended."""

    # The database's URL is part of the class and not an option, because Spark shows options in plans.
    class ReplaySink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: StructType, _overwrite: bool) -> DataSourceArrowWriter:
            return ReplayWriter(run)

    planned.sparkSession.dataSource.register(ReplaySink)
    planned.write.format(FORMAT).mode("append").save()


class ReplayWriter(DataSourceArrowWriter):
    """Does the parts of a replay."""

    def __init__(self, run: ReplayRun) -> None:
        self._run = run

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Do one part."""
        import uvloop

        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is not None:
            task = TaskContext.get()
            attempt = 0 if task is None else task.taskAttemptId()
            number = first.column(PART)[0].as_py()
            part = ReplayPart(self._run.replay_id, self._run.run, number, f"{self._run.run}:{attempt}")
            next_ids = in_chunks(_ids(first, batches), AT_A_TIME)
            uvloop.run(do_part(self._run, part, next_ids, SystemClock()))
        return WriterCommitMessage()


def _ids(first: pyarrow.RecordBatch, rest: Iterator[pyarrow.RecordBatch]) -> Iterator[str]:
    yield from first.column("id").to_pylist()
    for batch in rest:
        yield from batch.column("id").to_pylist()


def in_chunks(ids: Iterator[str], most: int) -> NextIds:
    """Return ids in lists; an id that comes twice in a row, as its job was archived meanwhile, is returned once."""
    last: list[str] = []

    def next_ids() -> list[str]:
        chunk: list[str] = []
        for job_id in ids:
            if chunk[-1:] == [job_id] or last == [job_id]:
                continue
            chunk.append(job_id)
            if len(chunk) == most:
                break
        last[:] = chunk[-1:]
        return chunk

    return next_ids


async def do_part(run: ReplayRun, part: ReplayPart, next_ids: NextIds, clock: Clock) -> None:
    """Do a part to its end, or until the replay should stop; `next_ids` returns jobs in order, then an empty list."""
    async with replays_in(run.database, clock) as replays:
        if not await replays.own(part):
            return
        pace = ReplayPace(run.timetable, part.number, clock)
        if run.direct is None:
            await _copy(replays, part, next_ids, pace)
        else:
            async with open_courier(run.direct, Breakers(clock), clock) as courier:
                await _deliver(replays, part, next_ids, courier, pace, clock)


async def _copy(replays: Replays, part: ReplayPart, next_ids: NextIds, pace: ReplayPace) -> None:
    """Copy in one transaction after another, so that jobs of a group reach the queue in order."""
    while ids := await asyncio.to_thread(next_ids):
        if not (await replays.make_copies(part, [(job_id, pace.due_ms()) for job_id in ids])).goes_on:
            return


async def _deliver(
    replays: Replays, part: ReplayPart, next_ids: NextIds, courier: Courier, pace: ReplayPace, clock: Clock
) -> None:
    outcomes = OutcomeWriter(replays, part)
    deliveries = JobDelivery(part.replay_id, courier, outcomes, pace, clock)
    async with asyncio.TaskGroup() as watching:
        watcher = watching.create_task(_watch_for_stop(outcomes), name="watch for a stop")
        try:
            async with asyncio.TaskGroup() as tasks:
                await _feed(replays, part, next_ids, GroupDelivery(deliveries, outcomes, tasks), outcomes, clock)
        finally:
            watcher.cancel()


async def _feed(
    replays: Replays, part: ReplayPart, next_ids: NextIds, groups: GroupDelivery, outcomes: OutcomeWriter, clock: Clock
) -> None:
    known_until_ms = 0
    while not outcomes.stopped.is_set() and (ids := await asyncio.to_thread(next_ids)):
        if clock.now_ms() >= known_until_ms:
            groups.subscriptions = await replays.subscriptions()
            known_until_ms = clock.now_ms() + KNOWN_FOR_MS
        for load in await replays.loads(part.replay_id, ids):
            await groups.take(load)


async def _watch_for_stop(outcomes: OutcomeWriter) -> None:
    while not outcomes.stopped.is_set():
        await pause(POLL_S)
        await outcomes.record(None)


def replays_in(database: SparkDatabase, clock: Clock) -> Replays:
    """Return the replays of a database."""
    return database.repository().replays(clock)


def task_error(error: Exception) -> str:
    """Return why tasks failed in one line: the last error of ours in the text, else its first line."""
    text = str(error)
    raised = _RAISED.findall(text)
    reason = raised[-1].partition(": ")[2] if raised else next(iter(text.splitlines()), type(error).__name__)
    return reason[:_MOST_CHARS]

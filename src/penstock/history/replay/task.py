"""The work of one task: its part of a replay, delivered or copied in the order in which the jobs come.

What a task of a replay has to know, as it travels to an executor.

The sink that replays: a write of planned jobs to it delivers them, each task its part.

A sink, since a plan with side effects would run them once per action, and a part of them for every look at its rows.

Why tasks failed, in one line: what Python raised in an executor comes to the driver inside Java's stack trace.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import msgspec
import pyarrow
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.client.types import LONGEST_TIMEOUT_S
from penstock.delivery import Breakers, Courier, DeliverySettings, EgressGuard, HttpClient
from penstock.domain.addresses import Network
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock, SystemClock
from penstock.edge.pause import pause
from penstock.events.store import ReplayPart, Replays
from penstock.history.replay.rounds import PART, GroupRounds
from penstock.history.replay.timetable import ReplayPace, Timetable
from penstock.history.replay.visit import Outcomes, Visits
from penstock.ops.config import HttpVersion
from penstock.spark.database import SparkDatabase


class DirectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How executors deliver."""

    egress_allow: tuple[Network, ...] = ()
    connect_timeout_s: float = 10.0
    http_version: HttpVersion = HttpVersion.HTTP_2


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a replay; without `direct` its jobs go through the queue, without a timetable as fast as they can."""

    database: SparkDatabase
    replay_id: str
    run: int
    direct: DirectSettings | None = None
    timetable: Timetable | None = None


def replays_in(database: SparkDatabase, clock: Clock) -> Replays:
    """The replays that a database keeps."""
    return database.repository().replays(clock)


LOOK_S = 1.0
"""How often a task that has nothing to write down asks whether it is to stop."""

KNOWN_FOR_MS = 5 * SECOND_MS
"""How long what is known of subscriptions is relied on."""

NextIds = Callable[[], list[str]]


async def do_part(errand: Errand, part: ReplayPart, next_ids: NextIds, clock: Clock) -> None:
    """Do a part to its end, or until the replay is to stop; `next_ids` gives jobs in order, then an empty list."""
    async with replays_in(errand.database, clock) as replays:
        if not await replays.own(part):
            return
        pace = ReplayPace(errand.timetable, part.number, clock)
        if errand.direct is None:
            await _copy(replays, part, next_ids, pace)
        else:
            async with _courier(errand.direct, clock) as courier:
                await _deliver(replays, part, next_ids, courier, pace, clock)


async def _copy(replays: Replays, part: ReplayPart, next_ids: NextIds, pace: ReplayPace) -> None:
    """One transaction after another: a later job of a group never comes to the queue before an earlier one."""
    while ids := await asyncio.to_thread(next_ids):
        if not (await replays.make_copies(part, [(job_id, pace.due_ms()) for job_id in ids])).goes_on:
            return


async def _deliver(
    replays: Replays, part: ReplayPart, next_ids: NextIds, courier: Courier, pace: ReplayPace, clock: Clock
) -> None:
    outcomes = Outcomes(replays, part)
    visits = Visits(part.replay_id, courier, outcomes, pace, clock)
    async with asyncio.TaskGroup() as looking:
        look = looking.create_task(_look(outcomes), name="look whether to stop")
        try:
            async with asyncio.TaskGroup() as tasks:
                await _feed(replays, part, next_ids, GroupRounds(visits, outcomes, tasks), outcomes, clock)
        finally:
            look.cancel()


async def _feed(
    replays: Replays, part: ReplayPart, next_ids: NextIds, rounds: GroupRounds, outcomes: Outcomes, clock: Clock
) -> None:
    known_until_ms = 0
    while not outcomes.stopped.is_set() and (ids := await asyncio.to_thread(next_ids)):
        if clock.now_ms() >= known_until_ms:
            rounds.subscriptions = await replays.subscriptions()
            known_until_ms = clock.now_ms() + KNOWN_FOR_MS
        for load in await replays.loads(part.replay_id, ids):
            await rounds.take(load)


async def _look(outcomes: Outcomes) -> None:
    while not outcomes.stopped.is_set():
        await pause(LOOK_S)
        await outcomes.keep(None)


@asynccontextmanager
async def _courier(settings: DirectSettings, clock: Clock) -> AsyncIterator[Courier]:
    delivery = DeliverySettings(
        request_timeout_s=LONGEST_TIMEOUT_S,
        connect_timeout_s=settings.connect_timeout_s,
        http_version=settings.http_version,
    )
    guard = EgressGuard(settings.egress_allow)
    try:
        async with HttpClient(guard, delivery) as client:
            yield Courier(client, Breakers(clock), clock)
    finally:
        guard.close()


def in_chunks(ids: Iterator[str], most: int) -> NextIds:
    """Hands out ids in lists; one that comes twice in a row, seen while it went to the archive, is given once."""
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


FORMAT = "penstock_replay"
AT_A_TIME = 250


class ReplayWriter(DataSourceArrowWriter):
    """Does the parts."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Do one part."""
        import uvloop

        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is not None:
            task = TaskContext.get()
            attempt = 0 if task is None else task.taskAttemptId()
            number = first.column(PART)[0].as_py()
            part = ReplayPart(self._errand.replay_id, self._errand.run, number, f"{self._errand.run}:{attempt}")
            next_ids = in_chunks(_ids(first, batches), AT_A_TIME)
            uvloop.run(do_part(self._errand, part, next_ids, SystemClock()))
        return WriterCommitMessage()


def replay(planned: DataFrame, errand: Errand) -> None:
    """Deliver planned jobs; returns when all tasks are at their end."""

    # The database's URL is part of the class, never an option: Spark shows options in plans.
    class ReplaySink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def writer(self, schema: StructType, _overwrite: bool) -> DataSourceArrowWriter:
            return ReplayWriter(errand)

    planned.sparkSession.dataSource.register(ReplaySink)
    planned.write.format(FORMAT).mode("append").save()


def _ids(first: pyarrow.RecordBatch, rest: Iterator[pyarrow.RecordBatch]) -> Iterator[str]:
    yield from first.column("id").to_pylist()
    for batch in rest:
        yield from batch.column("id").to_pylist()


_RAISED = re.compile(r"^(?:penstock(?:\.\w+)*\.)(\w+: .+)$", re.MULTILINE)
_MOST_CHARS = 300


def told_by_tasks(error: Exception) -> str:
    """The last error of ours in the text, else its first line."""
    text = str(error)
    raised = _RAISED.findall(text)
    told = raised[-1].partition(": ")[2] if raised else next(iter(text.splitlines()), type(error).__name__)
    return told[:_MOST_CHARS]

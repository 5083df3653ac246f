"""A rehearsal of the audit: a day of events, fanned out by Spark and delivered by the rules, must be clean.

Then one breach of each kind is planted in the database, and the audit must find exactly these. The deliveries are
written as history to an SQLite database of their own; nothing is sent.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from heapq import heappop, heappush
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

import msgspec
from pyspark.sql import SparkSession

from penstock.domain.event import StoredEvent
from penstock.domain.ids import TsidFactory
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.spark import FanOutJob, FanOutSettings
from penstock.events.store import StoredMode, StoredState
from penstock.history.audit.audit import audit_database
from penstock.history.audit.findings import AuditResult, FindingKind
from penstock.history.audit.window import AuditWindow
from penstock.history.lake.facts_job import FactsJob, FactsSettings
from penstock.spark.database import SparkDatabase

PLANTED = {
    FindingKind.LOST: 1,
    FindingKind.UNDELIVERED: 1,
    FindingKind.OVERTAKEN: 1,
    FindingKind.OVERLAP: 1,
    FindingKind.DUPLICATE: 1,
    FindingKind.UNKNOWN_JOB: 0,
    FindingKind.DAMAGED: 0,
}
"""The findings of the breaches that `plant_breaches` creates."""

DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_NODE = 1
_AT_ONCE = 2_000
_TYPES = ("orders:eu:created", "orders:us:created", "orders:eu:paid", "carts:eu:left")
_RETRY_MS = 60_000
_NEIGHBOURS = 2
_FAILED, _DELIVERED, _REFUSED = AttemptOutcome.FAILED, AttemptOutcome.DELIVERED, AttemptOutcome.REFUSED
_STATE = {_DELIVERED: int(StoredState.COMPLETED), _REFUSED: int(StoredState.ERROR)}

_DELIVERED_ONCE = """
SELECT id, group_key, place, at_ms FROM (
    SELECT id, group_key, mode, state, attempt_count,
        row_number() OVER (PARTITION BY group_key ORDER BY sequence, created_at_ms, id) AS place
    FROM jobs
) AS placed JOIN attempts ON job_id = id
WHERE mode = {} AND state = 5 AND attempt_count = 1 AND outcome = 'DELIVERED' ORDER BY group_key, place"""


class GoldenDay(msgspec.Struct, frozen=True, kw_only=True):
    """How many events of how many keys the day has, and when it begins."""

    from_ms: int
    events: int = 100_000
    keys: int = 500


OnStep = Callable[[str], None]
"""Called with a description of each step that starts."""


class Rehearsed(NamedTuple):
    """The audits of the day, before and after the breaches."""

    day: AuditResult
    broken: AuditResult


def rehearse(
    spark: SparkSession, database: SparkDatabase, checkpoint: str, day: GoldenDay, on_step: OnStep = lambda _: None
) -> Rehearsed:
    """Create the day in an empty SQLite database, and audit it before and after the breaches."""
    on_step(f"publishing {day.events:,} events")
    asyncio.run(_publish(database, day))
    on_step("fanning them out on Spark")
    job = FanOutJob(database, FanOutSettings(once=True))
    try:
        job.start(spark, checkpoint).awaitTermination()
    finally:
        job.close()
    on_step("delivering their jobs")
    deliver_day(database)
    # Long after, when jobs that were held up are finished.
    end_ms = day.from_ms + 2 * DAY_MS
    window = AuditWindow(since_ms=day.from_ms - 2 * _HOUR_MS, until_ms=end_ms, taken_ms=end_ms)
    on_step("auditing the day")
    clean = audit_database(spark, database, window)
    on_step("planting breaches, and auditing again")
    plant_breaches(database)
    return Rehearsed(clean, audit_database(spark, database, window))


def fill_lake(spark: SparkSession, database: SparkDatabase, lake: str, checkpoint: str) -> None:
    """Write the day to a lake."""
    FactsJob(database, FactsSettings(lake=lake, once=True)).start(spark, checkpoint).awaitTermination()


async def _publish(database: SparkDatabase, day: GoldenDay) -> None:
    ids = TsidFactory(_NODE)
    repository = database.repository()
    await repository.open(day.from_ms)
    try:
        for subscription in _subscriptions(ids, day.from_ms - _HOUR_MS):
            await repository.add_subscription(subscription)
        for start in range(0, day.events, _AT_ONCE):
            await repository.add_events(
                [_event(ids, number, day) for number in range(start, min(start + _AT_ONCE, day.events))]
            )
    finally:
        await repository.close()


def _subscriptions(ids: TsidFactory, made_ms: int) -> list[Subscription]:
    europe = EventFilter((Condition("region", values=("eu",)),))
    wanted = (
        ("billing", "orders:**", DispatchMode.BLOCK_ON_ERROR, EventFilter()),
        ("search", "orders:*:created", DispatchMode.NEXT_ON_ERROR, EventFilter()),
        ("counting", "**", DispatchMode.IMMEDIATE, EventFilter()),
        ("europe", "orders:**", DispatchMode.BLOCK_ON_ERROR, europe),
    )
    return [
        Subscription(
            id=ids.next_id(made_ms),
            name=name,
            pattern=pattern,
            target=f"https://{name}.example",
            mode=mode,
            filter=asked,
        )
        for name, pattern, mode, asked in wanted
    ]


def _event(ids: TsidFactory, number: int, day: GoldenDay) -> StoredEvent:
    received_ms = day.from_ms + number * DAY_MS // day.events
    kind = _TYPES[number % len(_TYPES)]
    # Every key has events of all types, because the number of keys is not a multiple of theirs.
    key = number * 7 // 3 % day.keys
    return StoredEvent(
        id=ids.next_id(received_ms),
        source="golden-day",
        type=kind,
        received_ms=received_ms,
        external_id=str(number),
        data=b"{}",
        group=f"клиент {key}" if key % 10 else None,
        attributes={"region": kind.split(":")[1]},
    )


class _Job(NamedTuple):
    id: str
    group_key: str
    mode: int
    created_at_ms: int

    @property
    def fate(self) -> int:
        """Return a number that decides the job's outcome, the same every time."""
        return crc32(self.id.encode())

    @property
    def is_refused(self) -> bool:
        """Return whether it ends in ERROR."""
        return self.fate % 2000 == 7

    @property
    def failures(self) -> int:
        """Return how often it fails before."""
        return 2 if self.fate % 50 == 1 else int(self.fate % 20 == 2)

    @property
    def arrives_ms(self) -> int:
        """Return when it could first be delivered."""
        return self.created_at_ms + 20 + self.fate % 200

    @property
    def took_ms(self) -> int:
        """Return how long each attempt lasts."""
        return 5 + self.fate % 40


class _Attempt(NamedTuple):
    job_id: str
    number: int
    outcome: AttemptOutcome
    at_ms: int
    duration_ms: int


def deliver_day(database: SparkDatabase) -> None:
    """Write the attempts and final states of all jobs."""
    with closing(sqlite3.connect(database.path)) as connection, connection:
        rows = connection.execute(
            "SELECT id, group_key, mode, created_at_ms FROM jobs ORDER BY group_key, sequence, created_at_ms, id"
        )
        jobs = map(_Job._make, rows.fetchall())
        for _, group in groupby(jobs, key=lambda job: job.group_key):
            _write(connection, list(_delivered(list(group))))


def _delivered(group: Sequence[_Job]) -> Iterator[_Attempt]:
    """Return the attempts of a group as its mode allows them."""
    match group[0].mode:
        case StoredMode.BLOCK_ON_ERROR:
            return _one_after_the_other(group)
        case StoredMode.NEXT_ON_ERROR:
            return _passing_what_failed(group)
        case _:
            return (attempt for job in group for attempt in _tries(job, job.arrives_ms))


def _tries(job: _Job, at_ms: int) -> Iterator[_Attempt]:
    """Return all attempts of a job that nothing holds up, from a time on."""
    for number in range(1, job.failures + 2):
        yield _attempt(job, number, at_ms)
        at_ms += job.took_ms + _RETRY_MS


def _one_after_the_other(group: Sequence[_Job]) -> Iterator[_Attempt]:
    free_ms = 0
    for job in group:
        for attempt in _tries(job, max(job.arrives_ms, free_ms)):
            yield attempt
            free_ms = attempt.at_ms + attempt.duration_ms
        if job.is_refused:
            return


def _passing_what_failed(group: Sequence[_Job]) -> Iterator[_Attempt]:
    free_ms, place = 0, 0
    failed: list[tuple[int, int, int]] = []
    while place < len(group) or failed:
        if failed and (place == len(group) or failed[0][0] <= max(group[place].arrives_ms, free_ms)):
            due_ms, which, number = heappop(failed)
        else:
            due_ms, which, number = group[place].arrives_ms, place, 1
            place += 1
        attempt = _attempt(group[which], number, max(due_ms, free_ms))
        yield attempt
        free_ms = attempt.at_ms + attempt.duration_ms
        if attempt.outcome is _FAILED:
            heappush(failed, (free_ms + _RETRY_MS, which, number + 1))


def _attempt(job: _Job, number: int, at_ms: int) -> _Attempt:
    last = _REFUSED if job.is_refused else _DELIVERED
    return _Attempt(job.id, number, last if number > job.failures else _FAILED, at_ms, job.took_ms)


def _write(connection: sqlite3.Connection, attempts: Sequence[_Attempt]) -> None:
    connection.executemany(
        "INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms) VALUES (?, ?, ?, ?, ?)", attempts
    )
    over = [
        (_STATE[each.outcome], each.number, each.number, each.at_ms + each.duration_ms, each.at_ms, each.job_id)
        for each in attempts
        if each.outcome in _STATE
    ]
    connection.executemany(
        "UPDATE jobs SET state = ?, attempt_count = ?, delivery_count = ?, finished_at_ms = ?, updated_at_ms = ? "
        "WHERE id = ?",
        over,
    )


def plant_breaches(database: SparkDatabase) -> None:
    """Write one breach of each kind, in separate places."""
    with closing(sqlite3.connect(database.path)) as connection, connection:
        once = connection.execute(_DELIVERED_ONCE.format(int(StoredMode.IMMEDIATE)) + " LIMIT 3").fetchall()
        lost, undelivered, repeated = (job_id for job_id, *_ in once)
        connection.execute("DELETE FROM attempts WHERE job_id = ?", (lost,))
        connection.execute("DELETE FROM jobs WHERE id = ?", (lost,))
        connection.execute("UPDATE attempts SET outcome = 'FAILED' WHERE job_id = ?", (undelivered,))
        connection.execute(
            "INSERT INTO attempts (job_id, number, outcome, at_ms, duration_ms) "
            "SELECT job_id, 2, outcome, at_ms + 60000, duration_ms FROM attempts WHERE job_id = ?",
            (repeated,),
        )
        swapped, overlapping = _pairs(connection)
        _swap(connection, *swapped)
        (first, first_ms), (_, second_ms) = overlapping
        connection.execute("UPDATE attempts SET duration_ms = ? WHERE job_id = ?", (second_ms - first_ms + 10, first))


def _pairs(connection: sqlite3.Connection) -> list[list[tuple[str, int]]]:
    """Return two pairs of neighbours in two ordered groups; each job was delivered at its first attempt."""
    rows = connection.execute(_DELIVERED_ONCE.format(int(StoredMode.BLOCK_ON_ERROR)))
    pairs: list[list[tuple[str, int]]] = []
    for _, group in groupby(rows.fetchall(), key=lambda row: row[1]):
        neighbours = [(job_id, at_ms) for job_id, _, place, at_ms in group if place <= _NEIGHBOURS]
        if len(neighbours) == _NEIGHBOURS:
            pairs.append(neighbours)
    return pairs[:_NEIGHBOURS]


def _swap(connection: sqlite3.Connection, first: tuple[str, int], second: tuple[str, int]) -> None:
    for (job_id, at_ms), (_, other_ms) in ((first, second), (second, first)):
        connection.execute("UPDATE attempts SET at_ms = ? WHERE job_id = ?", (other_ms, job_id))
        connection.execute(
            "UPDATE jobs SET finished_at_ms = finished_at_ms + ? WHERE id = ?", (other_ms - at_ms, job_id)
        )

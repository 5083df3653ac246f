"""Statistics in both databases: every attempt is counted once, whoever counts, and what is kept is bounded."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import psycopg
import pytest

from penstock.domain.job import Attempt
from penstock.domain.job_state import JobStatus
from penstock.domain.limits import MINUTE_MS
from penstock.domain.outcome import AttemptOutcome
from penstock.events.statistics.inline import InlineCounter
from penstock.events.statistics.minutes import (
    BEFORE_ALL,
    OTHERS,
    Counted,
    Dimension,
    Leader,
    Leaders,
    Minute,
    StatisticsPlace,
)
from penstock.events.store.postgres import postgres_repository
from penstock.events.store.repository.deliveries import Done, EndedDelivery
from penstock.events.store.repository.statistics import KEPT_MS, NAMES_PER_MINUTE, Statistics
from tests.rigs.job_database import Connect
from tests.rigs.jobs import JobRig, finish_all
from tests.rigs.virtual_pauses import VirtualPauses

MINUTE = Minute(minute_ms=1_700_000_040_000, by=Dimension.POOL, name="p", delivered=2, failed=1, waits=1, waited_ms=5)
NOW_MS = MINUTE.minute_ms + MINUTE_MS
FIRST, SECOND = StatisticsPlace(1, "a", 1, NOW_MS), StatisticsPlace(2, "b", 1, NOW_MS)


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[JobRig]:
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


@pytest.fixture
def statistics(rig: JobRig) -> Statistics:
    return rig.repository.statistics


async def minutes(statistics: Statistics, by: Dimension = Dimension.POOL) -> list[Minute]:
    return await statistics.minutes(0, 2**53, by)


async def deliver(rig: JobRig, count: int = 1, outcome: AttemptOutcome = AttemptOutcome.DELIVERED) -> None:
    """Jobs of one group each, delivered one after the other."""
    for _ in range(count):
        job_id = await rig.make(group=None)
        await rig.queue_all()
        begin = await rig.begin(job_id)
        assert begin.job is not None
        attempt = Attempt(number=begin.job.delivery_count, outcome=outcome, at_ms=rig.now_ms, duration_ms=7)
        await finish_all(rig.repository, [EndedDelivery(job_id, attempt, Done(JobStatus.COMPLETED), rig.now_ms)])


def counter(rig: JobRig) -> InlineCounter:
    return InlineCounter(rig.repository.statistics, rig.clock, VirtualPauses(rig.clock).pause)


async def test_batches_add_up(statistics: Statistics) -> None:
    assert await statistics.add(Counted(upto=FIRST, minutes=(MINUTE,), rows=3), BEFORE_ALL, NOW_MS)
    assert await statistics.add(Counted(upto=SECOND, minutes=(MINUTE,), rows=3, set_aside=1), FIRST, NOW_MS)

    (row,) = await minutes(statistics)
    assert (row.delivered, row.failed, row.waits, row.waited_ms) == (4, 2, 2, 10)
    progress = await statistics.progress()
    assert (progress.upto, progress.counted, progress.set_aside) == (SECOND, 6, 1)


async def test_a_batch_that_comes_again_adds_nothing(statistics: Statistics) -> None:
    batch = Counted(upto=FIRST, minutes=(MINUTE,), rows=3, leaders={MINUTE.minute_ms: Leaders((Leader("g", 3),))})
    assert await statistics.add(batch, BEFORE_ALL, NOW_MS)

    assert not await statistics.add(batch, BEFORE_ALL, NOW_MS)

    assert await minutes(statistics) == [MINUTE]
    assert await statistics.leaders(0, 2**53, 10) == [Leader("g", 3)]


async def test_of_two_who_count_the_same_one_adds(statistics: Statistics) -> None:
    batch = Counted(upto=FIRST, minutes=(MINUTE,), rows=3)

    added = await asyncio.gather(*(statistics.add(batch, BEFORE_ALL, NOW_MS) for _ in range(4)))

    assert sorted(added) == [False, False, False, True]
    assert await minutes(statistics) == [MINUTE]


async def test_old_minutes_go(statistics: Statistics) -> None:
    batch = Counted(upto=FIRST, minutes=(MINUTE,), leaders={MINUTE.minute_ms: Leaders((Leader("g", 3),))})
    await statistics.add(batch, BEFORE_ALL, NOW_MS)

    await statistics.add(Counted(upto=SECOND), FIRST, NOW_MS + KEPT_MS)

    assert await minutes(statistics) == []
    assert await statistics.leaders(0, 2**53, 10) == []


async def test_a_minute_keeps_the_largest_names_and_the_sum_of_all(statistics: Statistics) -> None:
    rows = [
        msgspec.structs.replace(MINUTE, name=f"n{place}", delivered=place) for place in range(NAMES_PER_MINUTE + 50)
    ]
    await statistics.add(Counted(upto=FIRST, minutes=tuple(rows)), BEFORE_ALL, NOW_MS)
    await statistics.add(Counted(upto=SECOND, minutes=tuple(rows)), FIRST, NOW_MS)

    kept = {row.name: row for row in await minutes(statistics)}
    assert len(kept) == NAMES_PER_MINUTE + 1
    assert kept["n249"].delivered == 2 * 249
    assert OTHERS in kept
    assert "n0" not in kept
    assert sum(row.delivered for row in kept.values()) == 2 * sum(row.delivered for row in rows)


async def test_names_may_be_anything(statistics: Statistics) -> None:
    rows = [
        msgspec.structs.replace(MINUTE, name=name)
        for name in ("", "' --", "{among ids}", ":name", "%s", "ü\n\U0001f600", "x" * 200)
    ]
    await statistics.add(Counted(upto=FIRST, minutes=tuple(rows)), BEFORE_ALL, NOW_MS)

    assert {row.name for row in await minutes(statistics)} == {row.name for row in rows}


async def test_a_span_of_time_gives_its_minutes_in_order(statistics: Statistics) -> None:
    rows = [msgspec.structs.replace(MINUTE, minute_ms=MINUTE.minute_ms + step * MINUTE_MS) for step in (2, 0, 1)]
    await statistics.add(Counted(upto=FIRST, minutes=tuple(rows)), BEFORE_ALL, NOW_MS)

    found = await statistics.minutes(MINUTE.minute_ms, MINUTE.minute_ms + 2 * MINUTE_MS, Dimension.POOL)

    assert found == [rows[1], rows[2]]
    assert await statistics.minutes(0, 2**53, Dimension.ENDPOINT) == []


async def test_the_inline_engine_counts_each_attempt_once(rig: JobRig, statistics: Statistics) -> None:
    await deliver(rig, 3)
    await deliver(rig, 1, AttemptOutcome.FAILED)
    counting = counter(rig)
    assert await counting.count_some(3) == 3
    assert await counting.count_some(3) == 1
    await deliver(rig)

    while await counting.count_some(100):
        pass

    for by in Dimension:
        rows = await minutes(statistics, by)
        assert sum(row.delivered for row in rows) == 4
        assert sum(row.failed for row in rows) == 1
        assert sum(row.busy_ms for row in rows) == 5 * 7
    assert sum(leader.attempts for leader in await statistics.leaders(0, 2**53, 10)) == 5


async def test_two_inline_engines_count_each_attempt_once(rig: JobRig, statistics: Statistics) -> None:
    await deliver(rig, 6)

    await asyncio.gather(*(counter(rig).count_some(2) for _ in range(6)))
    while await counter(rig).count_some(2):
        pass

    assert sum(row.delivered for row in await minutes(statistics)) == 6
    assert (await statistics.progress()).counted == 6


async def test_an_attempt_that_cannot_be_true_is_passed(rig: JobRig, statistics: Statistics) -> None:
    await deliver(rig)
    job_id = await rig.make(group=None)
    await rig.queue_all()
    begin = await rig.begin(job_id)
    assert begin.job is not None
    future = Attempt(number=1, outcome=AttemptOutcome.DELIVERED, at_ms=rig.now_ms + 3 * 86_400_000, duration_ms=-5)
    await finish_all(rig.repository, [EndedDelivery(job_id, future, Done(JobStatus.COMPLETED), rig.now_ms)])

    while await counter(rig).count_some(10):
        pass

    progress = await statistics.progress()
    assert (progress.counted, progress.set_aside) == (1, 1)
    assert sum(row.attempts for row in await minutes(statistics)) == 1


async def test_an_attempt_that_is_committed_late_is_counted_late_not_passed(postgres_database: str) -> None:
    repository = postgres_repository(postgres_database)
    rig = JobRig(repository)
    await repository.open(rig.now_ms)
    columns = "job_id, number, outcome, at_ms, duration_ms"
    insert = f"INSERT INTO penstock_jobs.attempts ({columns}) VALUES (%s, 1, 'FAILED', %s, 1)".encode()
    async with (
        await psycopg.AsyncConnection.connect(postgres_database) as slow,
        await psycopg.AsyncConnection.connect(postgres_database) as quick,
    ):
        await slow.execute(insert, ("slow", rig.now_ms))
        await quick.execute(insert, ("quick", rig.now_ms))
        await quick.commit()

        assert await counter(rig).count_some(10) == 0

        await slow.commit()
        assert await counter(rig).count_some(10) == 2
    assert (await repository.statistics.progress()).counted == 2
    await repository.close()

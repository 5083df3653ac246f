"""Begins and ends that wait share a transaction; whoever shares one does not share its trouble."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from penstock.delivery import SecretBox
from penstock.domain.job import Attempt, DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.events.errors import DatabaseFailed, UnknownSubscription, ValuesRefused
from penstock.events.process.batches import MOST, DeliveryBatches, DeliveryStart
from penstock.events.process.subscriptions import KnownSubscriptions
from penstock.events.store import Beginning, Done, EndedDelivery
from penstock.events.store.database import Transaction
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import SqliteDatabase
from tests.rigs.job_database import with_tables
from tests.rigs.jobs import NEXT, JobRig

Result = TypeVar("Result")


class CountedDatabase(SqliteDatabase):
    """Counts transactions, and lets them wait or fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="survives-process-crash-only")
        self.writes = 0
        self.reads = 0
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.asked = asyncio.Event()
        self.failure: Exception | None = None

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        self.writes += 1
        self.asked.set()
        await self.may_go.wait()
        await self.may_write.wait()
        if self.failure is not None:
            raise self.failure
        return await super().write(work)

    async def read(self, work: Callable[[Transaction], Result]) -> Result:
        await self._count()
        return await super().read(work)

    async def read_few(self, work: Callable[[Transaction], Result]) -> Result:
        await self._count()
        return await super().read_few(work)

    async def _count(self) -> None:
        self.reads += 1
        self.asked.set()
        await self.may_go.wait()
        if self.failure is not None:
            raise self.failure


class BatchRig(JobRig):
    """Batches on a database whose transactions can be counted, held up and refused."""

    def __init__(self, database: CountedDatabase) -> None:
        super().__init__(JobRepository(database))
        self.database = database
        self.batches = DeliveryBatches(self.repository, self.clock)

    async def queued(self, count: int) -> list[str]:
        """Jobs of a lane each that are in the queue."""
        ids = await self.make_many([self.new_job(f"g{n}") for n in range(count)])
        await self.queue_all()
        self.database.writes = self.database.reads = 0
        return ids

    async def begin_each(self, ids: list[str]) -> list[DeliveryStart]:
        return await asyncio.gather(*map(self.batches.begin, ids))

    def end_of(self, job: DispatchJob | None, **fields: object) -> EndedDelivery:
        assert job is not None
        usual: dict[str, object] = {
            "number": job.delivery_count,
            "outcome": AttemptOutcome.DELIVERED,
            "at_ms": self.now_ms,
            "duration_ms": 1,
        }
        return EndedDelivery(job.id, Attempt(**{**usual, **fields}), Done(JobStatus.COMPLETED), self.now_ms)  # type: ignore[arg-type]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[BatchRig]:
    rig = BatchRig(CountedDatabase(with_tables(tmp_path / "jobs.db")))
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


def whats(starts: list[DeliveryStart]) -> list[Beginning]:
    return [start.begin.what for start in starts]


async def test_one_alone_begins_without_waiting_for_others(rig: BatchRig) -> None:
    (job_id,) = await rig.queued(1)

    assert (await rig.batches.begin(job_id)).begin.what is Beginning.BEGUN
    assert (rig.database.reads, rig.database.writes) == (1, 0)


async def test_what_arrives_during_a_transaction_shares_the_next_one(rig: BatchRig) -> None:
    first, *others = await rig.queued(60)
    rig.database.may_go.clear()
    rig.database.asked.clear()
    leading = asyncio.create_task(rig.batches.begin(first))
    await rig.database.asked.wait()
    following = asyncio.create_task(rig.begin_each(others))
    await asyncio.sleep(0)
    rig.database.may_go.set()

    begun = await following

    assert set(whats([await leading, *begun])) == {Beginning.BEGUN}
    assert rig.database.reads == 2
    ends = await asyncio.gather(*(rig.batches.finish(rig.end_of(start.begin.job)) for start in begun))
    assert all(ends)
    assert rig.database.writes == 1


async def test_a_begin_does_not_wait_for_the_end_of_another(rig: BatchRig) -> None:
    first, second = await rig.queued(2)
    begun = await rig.batches.begin(first)
    rig.database.may_write.clear()
    ending = asyncio.create_task(rig.batches.finish(rig.end_of(begun.begin.job)))

    assert (await rig.batches.begin(second)).begin.what is Beginning.BEGUN
    assert not ending.done()
    rig.database.may_write.set()
    assert await ending


async def test_a_job_and_its_lane_are_busy_until_the_delivery_is_over(rig: BatchRig) -> None:
    ids = [await rig.make(mode=NEXT) for _ in range(2)]
    await rig.queue_all()
    for job_id in ids:
        await rig.fail_for_now(job_id, delay_s=1)
    rig.clock.advance(1)
    await rig.queue_all()
    begun = (await rig.batches.begin(ids[0])).begin
    assert begun.job is not None

    # Tried jobs of this mode pass each other, but not during a delivery.
    assert whats(await rig.begin_each([ids[0], ids[1]])) == [Beginning.BUSY, Beginning.BUSY]
    rig.batches.is_over(begun.job)
    assert whats(await rig.begin_each([ids[1]])) == [Beginning.BEGUN]


async def test_a_transaction_takes_no_more_than_it_may(rig: BatchRig) -> None:
    ids = await rig.queued(MOST + 1)

    assert set(whats(await rig.begin_each(ids))) == {Beginning.BEGUN}
    assert rig.database.reads == 2


async def test_a_job_that_is_brought_twice_begins_once(rig: BatchRig) -> None:
    (job_id,) = await rig.queued(1)

    assert whats(await rig.begin_each([job_id] * 3)) == [Beginning.BEGUN, Beginning.BUSY, Beginning.BUSY]


async def test_a_job_that_may_not_begin_is_told_why(rig: BatchRig) -> None:
    (job_id,) = await rig.queued(1)

    assert whats(await rig.begin_each(["nobody", job_id])) == [Beginning.UNKNOWN, Beginning.BEGUN]


async def test_a_database_that_fails_fails_each_who_waits_and_the_next_try_works(rig: BatchRig) -> None:
    ids = await rig.queued(3)
    rig.database.failure = DatabaseFailed("the disk is gone")

    results = await asyncio.gather(*map(rig.batches.begin, ids), return_exceptions=True)

    assert [str(result) for result in results] == ["the disk is gone"] * 3
    assert rig.database.reads == 1
    rig.database.failure = None
    assert set(whats(await rig.begin_each(ids))) == {Beginning.BEGUN}


async def test_a_value_that_cannot_be_kept_fails_only_its_own_delivery(rig: BatchRig) -> None:
    begun = await rig.begin_each(await rig.queued(3))
    ends = [rig.end_of(start.begin.job) for start in begun]
    ends[1] = rig.end_of(begun[1].begin.job, response="\ud800")

    results = await asyncio.gather(*map(rig.batches.finish, ends), return_exceptions=True)

    assert (results[0], results[2]) == (True, True)
    assert isinstance(results[1], ValuesRefused)
    assert await rig.status(ends[1].job_id) is JobStatus.QUEUED


async def test_a_caller_that_is_gone_before_the_transaction_begins_nothing(rig: BatchRig) -> None:
    first, second = await rig.queued(2)
    rig.database.may_go.clear()
    rig.database.asked.clear()
    leading = asyncio.create_task(rig.batches.begin(first))
    await rig.database.asked.wait()
    given_up = asyncio.create_task(rig.batches.begin(second))
    await asyncio.sleep(0)
    given_up.cancel()
    rig.database.may_go.set()

    await leading
    assert (await asyncio.gather(given_up, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    assert await rig.status(second) is JobStatus.QUEUED


async def test_an_end_is_kept_even_if_its_caller_is_gone(rig: BatchRig) -> None:
    first, second = await rig.queued(2)
    begun, other = await rig.begin_each([first, second])
    rig.database.may_go.clear()
    ending = asyncio.create_task(rig.batches.finish(rig.end_of(begun.begin.job)))
    await asyncio.sleep(0)
    ending.cancel()
    rig.database.may_go.set()

    assert await rig.batches.finish(rig.end_of(other.begin.job))

    assert await rig.status(first) is JobStatus.COMPLETED


class TestKnownSubscriptions:
    async def changes(self, rig: BatchRig) -> int:
        return (await rig.batches.begin("nobody")).subscription_changes

    async def test_a_subscription_is_read_once(self, rig: BatchRig) -> None:
        subscription = rig.new_subscription()
        await rig.repository.add_subscription(subscription)
        known, changes = KnownSubscriptions(rig.repository, SecretBox()), await self.changes(rig)
        rig.database.reads = 0

        assert [await known.get(subscription.id, changes) for _ in range(3)] == [subscription] * 3
        assert rig.database.reads == 1

    async def test_a_change_takes_effect_with_the_next_batch(self, rig: BatchRig) -> None:
        subscription = rig.new_subscription()
        await rig.repository.add_subscription(subscription)
        known = KnownSubscriptions(rig.repository, SecretBox())
        await known.get(subscription.id, await self.changes(rig))
        changed = rig.new_subscription(id=subscription.id, target="https://b.example/hook")
        await rig.repository.change_subscription(changed)

        assert await known.get(subscription.id, await self.changes(rig)) == changed
        await rig.repository.delete_subscription(subscription.id)
        with pytest.raises(UnknownSubscription):
            await known.get(subscription.id, await self.changes(rig))

    async def test_what_was_read_before_a_change_is_not_kept_after_it(self, rig: BatchRig) -> None:
        subscription = rig.new_subscription()
        await rig.repository.add_subscription(subscription)
        known, before = KnownSubscriptions(rig.repository, SecretBox()), await self.changes(rig)
        slow = asyncio.create_task(known.get(subscription.id, before))
        await asyncio.sleep(0)
        changed = rig.new_subscription(id=subscription.id, target="https://b.example/hook")
        await rig.repository.change_subscription(changed)
        after = await self.changes(rig)
        await known.get(subscription.id, after)
        await slow

        assert await known.get(subscription.id, after) == changed

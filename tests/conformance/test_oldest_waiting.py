"""How long the oldest has waited is the same on both databases, however a job waits and whoever takes it."""

from collections.abc import AsyncIterator

import pytest

from penstock.domain.order import LaneKey
from penstock.events.store.repository.inspection import OldestWaiting
from penstock.events.store.repository.lanes import LaneOwner
from tests.rigs.job_database import Connect
from tests.rigs.jobs import BLOCK, IMMEDIATE, NEXT, JobRig, unlimited


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[JobRig]:
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


async def oldest(rig: JobRig) -> OldestWaiting:
    found = await rig.repository.oldest_waiting(rig.now_ms)
    return OldestWaiting(found.since_ms, found.held_since_ms)


async def test_nothing_waits_in_an_empty_database_nor_when_all_is_delivered(rig: JobRig) -> None:
    assert await oldest(rig) == OldestWaiting(None, None)

    job_id = await rig.make()
    await rig.queue_all()
    await rig.deliver(job_id)
    assert await oldest(rig) == OldestWaiting(None, None)


@pytest.mark.parametrize("mode", [BLOCK, NEXT, IMMEDIATE])
async def test_a_job_waits_until_it_is_delivered(rig: JobRig, mode: object) -> None:
    made_ms = rig.now_ms
    job_id = await rig.make("a", mode=mode)
    rig.clock.advance(5)
    await rig.make("b", mode=mode)
    assert await oldest(rig) == OldestWaiting(made_ms)

    claimed = await rig.claim()
    assert await oldest(rig) == OldestWaiting(made_ms)
    await rig.queue(claimed)
    assert await oldest(rig) == OldestWaiting(made_ms)
    await rig.deliver(job_id)
    assert await oldest(rig) == OldestWaiting(made_ms + 5000)


async def test_a_job_in_a_lane_that_spark_has_claimed_waits_too(rig: JobRig) -> None:
    made_ms = rig.now_ms
    job_id = await rig.make("a")
    key = (await rig.repository.get_job(job_id)).group_key
    (turns,) = await rig.repository.lanes.awake_ranges("spark", rig.now_ms, 10, unlimited())
    lane = LaneKey(key, True)
    claimed = await rig.repository.lanes.claim({lane: turns.first_turn}, LaneOwner("spark"), rig.now_ms, 30_000)
    assert claimed == [lane]
    rig.clock.advance(1)

    assert await oldest(rig) == OldestWaiting(made_ms)


async def test_a_job_waits_from_when_it_is_due(rig: JobRig) -> None:
    planned_ms = rig.now_ms + 60_000
    await rig.make("a", scheduled_for_ms=planned_ms)
    tried = await rig.make("b")
    await rig.queue_all()
    await rig.fail_for_now(tried, 30)
    assert await oldest(rig) == OldestWaiting(None)

    rig.clock.advance(40)
    # No one has looked at what has come due: it waits all the same.
    assert await oldest(rig) == OldestWaiting(planned_ms - 30_000)
    rig.clock.advance(40)
    await rig.repository.do_chores(rig.now_ms)
    assert await oldest(rig) == OldestWaiting(planned_ms - 30_000)


async def test_an_event_waits_to_become_jobs(rig: JobRig) -> None:
    told_ms = rig.now_ms
    event = rig.new_event()
    await rig.repository.add_events([event])
    rig.clock.advance(3)
    await rig.make()
    assert await oldest(rig) == OldestWaiting(told_ms)

    await rig.repository.fan_out([event.id], [], rig.now_ms)
    assert await oldest(rig) == OldestWaiting(told_ms + 3000)


async def test_what_an_error_or_a_pause_holds_is_told_apart(rig: JobRig) -> None:
    failed = await rig.make("a")
    await rig.queue_all()
    await rig.fail(failed)
    held_ms = rig.now_ms
    await rig.make("a")
    await rig.queue_all()
    assert await oldest(rig) == OldestWaiting(None, held_ms)

    rig.clock.advance(1)
    paused = rig.new_subscription()
    await rig.repository.add_subscription(paused)
    await rig.make("b", subscription_id=paused.id)
    await rig.repository.pause_subscription(paused.id)
    await rig.repository.ignore([failed], rig.now_ms)
    assert await rig.queue_all()
    assert await oldest(rig) == OldestWaiting(held_ms, held_ms + 1000)

    await rig.repository.resume_subscription(paused.id)
    assert await oldest(rig) == OldestWaiting(held_ms)


async def test_many_that_are_held_do_not_hide_one_that_is_not(rig: JobRig) -> None:
    failed = await rig.make("a")
    await rig.queue_all()
    await rig.fail(failed)
    await rig.make_many([rig.new_job("a") for _ in range(300)])
    await rig.queue_all()
    rig.clock.advance(1)
    await rig.make("b")

    assert await oldest(rig) == OldestWaiting(rig.now_ms, rig.now_ms - 1000)


async def test_each_subscription_has_its_own_oldest(rig: JobRig) -> None:
    billing, stuck = rig.new_subscription("billing"), rig.new_subscription("stuck")
    for each in (billing, stuck):
        await rig.repository.add_subscription(each)
    failed = await rig.make("a", subscription_id=stuck.id)
    await rig.queue_all()
    await rig.fail(failed)
    await rig.make("a", subscription_id=stuck.id)
    await rig.queue_all()
    expected: dict[str | None, int] = {}
    for subscription_id in (None, billing.id):
        rig.clock.advance(1)
        await rig.make("b", subscription_id=subscription_id)
        expected[subscription_id or ""] = rig.now_ms
    rig.clock.advance(1)
    await rig.repository.add_events([rig.new_event()])
    expected[None] = rig.now_ms

    assert (await rig.repository.oldest_waiting(rig.now_ms)).by_subscription == expected
    await rig.queue_all()
    assert (await rig.repository.oldest_waiting(rig.now_ms)).by_subscription == expected

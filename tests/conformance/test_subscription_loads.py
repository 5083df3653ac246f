"""What waits for each subscription, and what holds it up, is the same on both databases."""

from collections.abc import AsyncIterator

import pytest

from penstock.events.store import COUNTED_JOBS, SubscriptionLoad
from tests.rigs.job_database import Connect
from tests.rigs.jobs import BLOCK, NEXT, JobRig


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[JobRig]:
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


async def subscribed(rig: JobRig, name: str) -> str:
    subscription = rig.new_subscription(name)
    await rig.repository.add_subscription(subscription)
    return subscription.id


async def load_of(rig: JobRig, subscription_id: str) -> SubscriptionLoad:
    return (await rig.repository.subscription_loads(rig.now_ms)).get(subscription_id, SubscriptionLoad())


def waiting(since_ms: int, **counts: int) -> SubscriptionLoad:
    """Jobs of which the oldest waits for nothing but its turn."""
    return SubscriptionLoad(due_since_ms=since_ms, waits_since_ms=since_ms, **counts)


async def test_a_job_is_counted_from_its_creation_to_its_delivery(rig: JobRig) -> None:
    billing, quiet = await subscribed(rig, "billing"), await subscribed(rig, "quiet")
    made_ms = rig.now_ms
    first = await rig.make("a", subscription_id=billing)
    rig.clock.advance(1)
    await rig.make("b", subscription_id=billing)
    assert await load_of(rig, billing) == waiting(made_ms, ready=2)

    await rig.queue_all()
    assert await load_of(rig, billing) == waiting(made_ms, under_way=2)
    await rig.deliver(first)
    assert await load_of(rig, billing) == waiting(made_ms + 1000, under_way=1)
    assert await load_of(rig, quiet) == SubscriptionLoad()


async def test_groups_that_wait_for_a_failed_job_are_counted(rig: JobRig) -> None:
    billing = await subscribed(rig, "billing")
    failed = [await rig.make(key, subscription_id=billing, mode=BLOCK) for key in ("a", "a", "b")]
    passing = await rig.make("c", subscription_id=billing, mode=NEXT)
    await rig.queue_all()
    await rig.fail(failed[0])
    await rig.fail_for_now(failed[2], 30)
    await rig.fail(passing)

    load = await load_of(rig, billing)
    assert (load.blocked_groups, load.retrying_groups, load.to_retry) == (1, 1, 1)
    assert load.blocked_since_ms == rig.now_ms
    await rig.repository.retry([failed[0]], rig.now_ms)
    assert (await load_of(rig, billing)).blocked_groups == 0


async def test_a_long_backlog_is_counted_up_to_a_limit_and_hides_no_one_elses(rig: JobRig) -> None:
    busy, other = await subscribed(rig, "busy"), await subscribed(rig, "other")
    made_ms = rig.now_ms
    await rig.make_many([rig.new_job(f"k{number}", subscription_id=busy) for number in range(COUNTED_JOBS + 10)])
    rig.clock.advance(1)
    await rig.make("a", subscription_id=other)

    assert await load_of(rig, busy) == waiting(made_ms, ready=COUNTED_JOBS)
    assert await load_of(rig, other) == waiting(made_ms + 1000, ready=1)


async def test_what_a_failed_job_or_a_pause_holds_does_not_wait_for_its_turn(rig: JobRig) -> None:
    billing = await subscribed(rig, "billing")
    failed = await rig.make("a", subscription_id=billing, mode=BLOCK)
    await rig.queue_all()
    await rig.fail(failed)
    held_ms = rig.now_ms
    await rig.make("a", subscription_id=billing, mode=BLOCK)
    await rig.queue_all()
    load = await load_of(rig, billing)
    assert (load.ready, load.due_since_ms, load.waits_since_ms) == (1, held_ms, None)

    await rig.repository.ignore([failed], rig.now_ms)
    assert (await load_of(rig, billing)).waits_since_ms == held_ms

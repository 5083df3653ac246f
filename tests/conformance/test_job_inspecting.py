"""What an operator looks at is the same on both databases: held groups, lanes, what was finished, jobs by time."""

from collections.abc import AsyncIterator

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.domain.job_state import JobStatus
from penstock.events.store.repository.inspection import THE_NEWEST, HeldGroup
from penstock.events.store.repository.listing import JobFilter
from tests.rigs.job_database import Connect
from tests.rigs.jobs import BLOCK, IMMEDIATE, NEXT, JobRig


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[JobRig]:
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


async def test_groups_are_held_by_errors_and_by_retries_to_come(rig: JobRig) -> None:
    retried, failed, passed, free = [await rig.make(group) for group in "abcd"]
    await rig.make("a")
    ignored = await rig.make("e", mode=NEXT)
    await rig.queue_all()
    await rig.fail_for_now(retried, 60)
    rig.clock.advance(1)
    await rig.fail(failed)
    await rig.fail(ignored)
    await rig.deliver(passed)

    held = await rig.repository.most_urgent_groups(10)

    kind = (await rig.repository.get_job(free)).type
    assert held == [
        HeldGroup(f"{kind}:b", None, 1, 1, rig.now_ms),
        HeldGroup(f"{kind}:a", None, 0, 1, rig.now_ms - 1000, 1),
    ]
    assert await rig.repository.most_urgent_groups(1) == held[:1]
    assert await rig.repository.held_groups("", 10) == held[::-1]
    assert await rig.repository.held_groups("", 1) == held[1:]
    assert await rig.repository.held_groups(f"{kind}:a", 10) == held[:1]
    assert await rig.repository.held_groups(f"{kind}:b", 10) == []


async def test_a_lane_has_what_is_not_over_in_the_order_of_delivery(rig: JobRig) -> None:
    done, failed = await rig.make("a"), await rig.make("a")
    first = await rig.make("a", sequence=1)
    last = await rig.make("a")
    await rig.make("b")
    await rig.queue_all()
    for job_id in (first, done):
        await rig.deliver(job_id)
    await rig.fail(failed)
    early = await rig.make("a", sequence=2)
    key = (await rig.repository.get_job(done)).group_key

    lane = await rig.repository.lane_of(key, 10)

    assert [job.id for job in lane.jobs] == [early, failed, last]
    assert {status: count for status, count in lane.counts.items() if count} == {
        JobStatus.COMPLETED: 2,
        JobStatus.ERROR: 1,
        JobStatus.PENDING: 1,
        JobStatus.QUEUED: 1,
    }
    assert [job.id for job in (await rig.repository.lane_of(key, 1)).jobs] == [early]
    assert not any((await rig.repository.lane_of("no such group", 10)).counts.values())


async def test_what_was_finished_lately_comes_with_its_last_delivery(rig: JobRig) -> None:
    early, late, tried, blocking, cancelled = [await rig.make(group, mode=mode) for group, mode in _WAYS]
    await rig.queue_all()
    await rig.deliver(early)
    rig.clock.advance(2)
    since_ms = rig.now_ms
    await rig.fail_for_now(tried, 0)
    rig.clock.advance(1)
    await rig.queue_all()
    await rig.deliver(late)
    rig.clock.advance(1)
    await rig.deliver(tried)
    await rig.fail(blocking)
    rig.clock.advance(1)
    await rig.repository.cancel([cancelled], rig.now_ms)

    found = await rig.repository.finished_lately(since_ms, THE_NEWEST, 10)

    assert [(job.id, job.status, job.deliveries, job.duration_ms) for job in found] == [
        (cancelled, JobStatus.CANCELLED, 0, None),
        (tried, JobStatus.COMPLETED, 2, 12),
        (late, JobStatus.COMPLETED, 1, 12),
    ]
    assert [job.id for job in await rig.repository.finished_lately(0, THE_NEWEST, 10)][-1] == early
    assert [job.id for job in await rig.repository.finished_lately(0, THE_NEWEST, 1)] == [cancelled]


_WAYS = (("a", IMMEDIATE), ("b", NEXT), ("c", NEXT), ("d", BLOCK), ("e", NEXT))


async def test_jobs_are_found_by_the_time_of_their_making(rig: JobRig) -> None:
    ids, times = [], []
    for _ in range(4):
        ids.append(await rig.make())
        times.append(rig.now_ms)
        rig.clock.advance(3600)
    # Made by a fan-out that came late: its id is of the time of its event.
    event_id = rig.new_event(received_ms=times[0]).id
    late = await rig.make(id=f"{event_id}-{rig.new_id()}", created_at_ms=rig.now_ms)

    async def found(created_from_ms: int | None = None, created_to_ms: int | None = None) -> list[str]:
        which = JobFilter(created_from_ms=created_from_ms, created_to_ms=created_to_ms)
        page = await rig.repository.list_jobs(which, None, 10)
        return [job.id for job in page.jobs]

    assert await found(created_from_ms=times[1], created_to_ms=times[3]) == ids[2:0:-1]
    assert await found(created_to_ms=times[1]) == ids[:1]
    assert sorted(await found(created_from_ms=times[3])) == sorted([ids[3], late])
    assert await found(created_from_ms=rig.now_ms + 1) == []


async def pages_of(rig: JobRig, which: JobFilter, most: int) -> list[list[str]]:
    """The ids of each page."""
    found: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = await rig.repository.list_jobs(which, cursor, most)
        found.append([job.id for job in page.jobs])
        cursor = page.cursor
        if cursor is None:
            return found


async def test_a_key_is_looked_for_in_the_lane_of_every_subscription_page_by_page(rig: JobRig) -> None:
    subscriptions = [rig.new_subscription(f"subscriber {number}") for number in range(7)]
    for subscription in subscriptions:
        await rig.repository.add_subscription(subscription)
    made: list[str] = []
    # Lanes of different length whose jobs stand between each other's, and one without any.
    for turn in range(5):
        for subscription in subscriptions[turn:-1]:
            groups = ("order-1", "order-12", None)
            jobs = await rig.make_many([rig.new_job(group, subscription_id=subscription.id) for group in groups])
            made.append(jobs[0])
    await rig.make("order-1")
    expected = sorted(made, reverse=True)

    for most in (1, 2, 3, len(made) - 1, len(made), 1000):
        pages = await pages_of(rig, JobFilter(key="order-1"), most)
        assert [job_id for page in pages for job_id in page] == expected, most
        assert all(len(page) == most for page in pages[:-1])
        assert pages[-1], "no page is empty"
    assert await pages_of(rig, JobFilter(key="order-3"), 5) == [[]]


async def test_a_key_is_looked_for_together_with_everything_else(rig: JobRig) -> None:
    one, other = rig.new_subscription("one"), rig.new_subscription("other")
    for subscription in (one, other):
        await rig.repository.add_subscription(subscription)
    first, second, third = await rig.make_many(
        [
            rig.new_job("a", subscription_id=subscription.id, type=kind)
            for subscription, kind in ((one, "t"), (other, "t"), (other, "u"))
        ]
    )
    await rig.queue_all()
    await rig.deliver(first)

    for which, expected in (
        (JobFilter(key="a"), [third, second, first]),
        (JobFilter(key="a", type="t"), [second, first]),
        (JobFilter(key="a", status=JobStatus.COMPLETED), [first]),
        (JobFilter(key="a", subscription_id=other.id), [third, second]),
        (JobFilter(key="a", created_to_ms=0), []),
    ):
        found = (await rig.repository.list_jobs(which, None, 10)).jobs
        assert [job.id for job in found] == expected, which
    with pytest.raises(InvalidArgument, match="not archived"):
        await rig.repository.list_jobs(JobFilter(key="a", archived=True), None, 10)

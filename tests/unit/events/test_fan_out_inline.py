"""Inline fan-out: events are kept together with the jobs they cause, for the subscriptions of that moment."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.matching import Comparison, Condition, EventFilter
from penstock.domain.subscription import Subscription
from penstock.events.errors import DatabaseFailed
from penstock.events.fan_out.inline import CurrentFanOut, InlinePublisher, Published, publisher_for
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.listing import JobFilter
from penstock.events.store.repository.subscriptions import ChangedSubscriptions
from penstock.events.store.sqlite import sqlite_repository
from penstock.ops.config.dispatch_options import FanOutBy
from tests.rigs.job_database import with_tables
from tests.rigs.jobs import JobRig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[JobRig]:
    repository = sqlite_repository(with_tables(tmp_path / "jobs.db"), durability="survives-process-crash-only")
    await repository.open(0)
    yield JobRig(repository)
    await repository.close()


@pytest.fixture
def publisher(rig: JobRig) -> InlinePublisher:
    return InlinePublisher(rig.repository, CurrentFanOut(rig.repository), rig.clock)


async def jobs_of(rig: JobRig, *events: StoredEvent) -> list[DispatchJob]:
    pages = [await rig.repository.list_jobs(JobFilter(event_id=event.id), None, 100) for event in events]
    return [job for page in pages for job in reversed(page.jobs)]


async def test_an_event_is_kept_with_a_job_for_each_subscription_that_wants_it(
    rig: JobRig, publisher: InlinePublisher
) -> None:
    billing, shipping = rig.new_subscription("billing"), rig.new_subscription("shipping", pattern="orders:*")
    for subscription in (billing, shipping, rig.new_subscription("refunds", pattern="refunds:**")):
        await rig.repository.add_subscription(subscription)
    event = rig.new_event(group="customer-1", data=b"7")

    assert await publisher.publish([event]) == [Published(event.id, 2)]

    assert (await rig.repository.get_event(event.id)).data == b"7"
    jobs = await jobs_of(rig, event)
    assert {job.group_key for job in jobs} == {f"{billing.id}:customer-1", f"{shipping.id}:customer-1"}


async def test_an_event_that_nobody_wants_is_kept_without_jobs(rig: JobRig, publisher: InlinePublisher) -> None:
    event = rig.new_event()
    assert await publisher.publish([event]) == [Published(event.id, 0)]
    assert await jobs_of(rig, event) == []


async def test_a_subscription_gets_what_is_published_after_it_was_made_or_changed(
    rig: JobRig, publisher: InlinePublisher
) -> None:
    before, after, removed = rig.new_event(), rig.new_event(), rig.new_event()
    await publisher.publish([before])
    subscription = rig.new_subscription()
    await rig.repository.add_subscription(subscription)
    await publisher.publish([after])
    await rig.repository.delete_subscription(subscription.id)
    await publisher.publish([removed])

    assert [job.event_id for job in await jobs_of(rig, before, after, removed)] == [after.id]


async def test_an_event_told_twice_causes_its_jobs_once(rig: JobRig, publisher: InlinePublisher) -> None:
    await rig.repository.add_subscription(rig.new_subscription())
    first, again, within = (rig.new_event(external_id="order 1") for _ in range(3))

    assert await publisher.publish([first, within]) == [Published(first.id, 1)] * 2
    assert await publisher.publish([again]) == [Published(first.id, 1)]

    assert len(await jobs_of(rig, first, again, within)) == 1


async def test_a_filter_asks_for_attributes_and_for_what_every_event_has(
    rig: JobRig, publisher: InlinePublisher
) -> None:
    red = EventFilter((Condition("colour", Comparison.IN, ("red",)), Condition("source", Comparison.PREFIX, ("shop",))))
    await rig.repository.add_subscription(rig.new_subscription(filter=red))
    events = [rig.new_event(attributes={"colour": "red"}), rig.new_event(attributes={"colour": "blue"})]
    events.append(rig.new_event(attributes={"colour": "red"}, source="warehouse"))

    await publisher.publish(events)

    assert [job.event_id for job in await jobs_of(rig, *events)] == [events[0].id]


async def test_a_paused_subscription_gets_its_jobs_and_they_wait(rig: JobRig, publisher: InlinePublisher) -> None:
    subscription = rig.new_subscription()
    await rig.repository.add_subscription(subscription)
    await rig.repository.pause_subscription(subscription.id)

    await publisher.publish([rig.new_event()])

    assert await rig.claim_ids() == []
    await rig.repository.resume_subscription(subscription.id)
    assert len(await rig.claim_ids()) == 1


async def test_tenants_do_not_see_each_others_events(rig: JobRig, publisher: InlinePublisher) -> None:
    ours, theirs = rig.new_subscription("ours"), rig.new_subscription("theirs", tenant="acme")
    for subscription in (ours, theirs):
        await rig.repository.add_subscription(subscription)
    events = [rig.new_event(), rig.new_event(tenant="acme")]

    await publisher.publish(events)

    assert [job.subscription_id for job in await jobs_of(rig, *events)] == [ours.id, theirs.id]


async def test_jobs_of_a_group_are_in_the_order_of_its_events_even_within_a_millisecond(
    rig: JobRig, publisher: InlinePublisher
) -> None:
    await rig.repository.add_subscription(rig.new_subscription())
    events = [rig.new_event(group="customer-1") for _ in range(20)]

    await publisher.publish(list(reversed(events)))

    assert [job_id.partition("-")[0] for job_id in await rig.claim_ids()] == [event.id for event in events]


async def test_an_event_published_for_the_pipeline_is_kept_without_jobs_and_waits_for_them(rig: JobRig) -> None:
    await rig.repository.add_subscription(rig.new_subscription())
    first, again = (rig.new_event(external_id="order 1") for _ in range(2))
    publisher = publisher_for(FanOutBy.PIPELINE, rig.repository, rig.clock)

    assert await publisher.publish([first]) == [Published(first.id, 1)]
    assert await publisher.publish([again]) == [Published(first.id, 1)]

    assert await jobs_of(rig, first, again) == []
    assert await rig.repository.count_events_to_fan_out(9) == 1
    assert await rig.repository.fan_out([first.id], [], rig.now_ms) == [first.id]


class SlowCatalog:
    """A repository of subscriptions whose reads end when they are told to; each sees what was there at its start."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []
        self.reads: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def changed_subscriptions(self, changes: int) -> ChangedSubscriptions | None:
        seen = None if changes == len(self.subscriptions) else list(self.subscriptions)
        ending = asyncio.get_running_loop().create_future()
        self.reads.put_nowait(ending)
        await ending
        return None if seen is None else ChangedSubscriptions(len(seen), seen)


async def test_who_asks_during_a_read_gets_the_next_one_and_shares_it() -> None:
    catalog = SlowCatalog()
    latest = CurrentFanOut(cast("JobRepository", catalog))
    event = StoredEvent(id="e", source="shop", type="orders:created", received_ms=0)
    first = asyncio.create_task(latest.current())
    first_read = await catalog.reads.get()
    catalog.subscriptions.append(Subscription(id="s", name="new", pattern="**", target="https://a.example"))
    later = [asyncio.create_task(latest.current()) for _ in range(3)]
    first_read.set_result(None)
    second_read = await catalog.reads.get()
    later[0].cancel()
    second_read.set_result(None)

    assert (await first).wanting(event) == []
    assert [len((await each).wanting(event)) for each in later[1:]] == [1, 1]
    assert catalog.reads.empty()


async def test_a_read_that_fails_fails_only_those_who_waited_for_it() -> None:
    catalog = SlowCatalog()
    latest = CurrentFanOut(cast("JobRepository", catalog))
    failing = asyncio.create_task(latest.current())
    first_read = await catalog.reads.get()
    next_one = asyncio.create_task(latest.current())
    first_read.set_exception(DatabaseFailed("it is away"))
    (await catalog.reads.get()).set_result(None)

    with pytest.raises(DatabaseFailed):
        await failing
    await next_one

"""The jobs of each key of a subscription are numbered without a gap, on both databases (EVENT-FANOUT-8)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.domain.event import StoredEvent
from penstock.domain.job import NewJob
from penstock.domain.pointer import DispatchMode
from penstock.domain.replay import copy_of
from penstock.events.fan_out.rule import job_for
from penstock.events.statistics import DAY_MS
from penstock.events.store import Subject
from tests.rigs.job_database import Connect
from tests.rigs.jobs import JobRig


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[JobRig]:
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


def jobs_of(rig: JobRig, events: list[StoredEvent], subscriptions: tuple[str, ...] = ("billing",)) -> list[NewJob]:
    wanting = [rig.new_subscription(id=each, name=each) for each in subscriptions]
    return [job_for(event, subscription) for event in events for subscription in wanting]


async def numbers(rig: JobRig, jobs: list[NewJob]) -> list[int | None]:
    return [(await rig.repository.get_job(job.id)).key_sequence for job in jobs]


async def publish(rig: JobRig, *keys: str | None, **fields: str) -> list[int | None]:
    events = [rig.new_event(group=key, **fields) for key in keys]
    jobs = jobs_of(rig, events)
    await rig.repository.publish(events, jobs, rig.now_ms)
    return await numbers(rig, jobs)


async def test_each_key_of_a_subscription_counts_from_one(rig: JobRig) -> None:
    assert await publish(rig, "anna", "bert", "anna") == [1, 1, 2]
    assert await publish(rig, "anna", "carl", "bert") == [3, 1, 2]
    events = [rig.new_event(group="anna")]
    jobs = jobs_of(rig, events, ("billing", "shipping"))
    await rig.repository.publish(events, jobs, rig.now_ms)
    assert await numbers(rig, jobs) == [4, 1]


async def test_jobs_created_later_continue_and_an_event_that_has_its_jobs_takes_no_number(rig: JobRig) -> None:
    first, second = rig.new_event(group="anna"), rig.new_event(group="anna")
    await rig.repository.add_events([first, second])
    jobs = jobs_of(rig, [first, second])
    for _ in range(2):
        await rig.repository.fan_out([first.id], jobs[:1], rig.now_ms)
    await rig.repository.fan_out([first.id, second.id], jobs, rig.now_ms)
    assert await numbers(rig, jobs) == [1, 2]


async def test_an_event_published_twice_takes_one_number(rig: JobRig) -> None:
    assert await publish(rig, "anna", external_id="17") == [1]
    again = [rig.new_event(group="anna", external_id="17")]
    await rig.repository.publish(again, jobs_of(rig, again), rig.now_ms)
    assert await publish(rig, "anna") == [2]


async def test_only_keys_and_ordered_events_are_numbered(rig: JobRig) -> None:
    assert await publish(rig, None, None) == [None, None]
    ordered = [rig.new_event() for _ in range(2)]
    in_order = [
        rig.new_job(None, id=event.id, event_id=event.id, subscription_id="s", mode=DispatchMode.BLOCK_ON_ERROR)
        for event in ordered
    ]
    await rig.repository.publish(ordered, in_order, rig.now_ms)
    direct = [rig.new_job("anna"), rig.new_job("anna", subscription_id="billing")]
    await rig.make_many(direct)
    assert await numbers(rig, [*in_order, *direct]) == [1, 2, None, None]


async def test_attempts_and_copies_keep_the_number(rig: JobRig) -> None:
    events = [rig.new_event(group="anna") for _ in range(2)]
    jobs = jobs_of(rig, events)
    await rig.repository.publish(events, jobs, rig.now_ms)
    await rig.queue_all()
    first = jobs[0]
    begun = (await rig.repository.begin([first.id], rig.now_ms)).begun[first.id]
    assert begun.job is not None
    assert begun.job.key_sequence == 1
    await rig.deliver(first.id)
    copy = copy_of(await rig.repository.get_job(first.id), rig.new_id(), None)
    await rig.make_many([copy])
    assert await numbers(rig, [copy]) == [1]
    await rig.repository.archive_finished(rig.now_ms + 1, rig.now_ms, 10)
    assert await numbers(rig, [first]) == [1]
    assert await publish(rig, "anna") == [3]


async def test_publishers_at_the_same_time_leave_no_gap(rig: JobRig, connect: Connect) -> None:
    other = JobRig(connect())
    await other.repository.open(rig.now_ms)
    rounds = [[rig.new_event(group=key) for key in ("anna", "bert")] for _ in range(40)]
    jobs = [jobs_of(rig, events) for events in rounds]
    nodes = (rig.repository, other.repository)
    await asyncio.gather(*(nodes[at % 2].publish(events, jobs[at], rig.now_ms) for at, events in enumerate(rounds)))
    for place in range(2):
        assert set(await numbers(rig, [each[place] for each in jobs])) == set(range(1, 41))
    await other.repository.close()


async def test_a_key_without_jobs_for_long_and_one_that_is_forgotten_begin_again(rig: JobRig) -> None:
    assert await publish(rig, "anna", "bert", "anna") == [1, 1, 2]
    rig.clock.advance(DAY_MS / 1000)
    assert await publish(rig, "bert") == [2]
    assert await rig.repository.forget_events(rig.now_ms, 10) == 1
    assert await rig.repository.forget_events(rig.now_ms, 10) == 0
    assert await publish(rig, "anna", "bert") == [1, 3]
    await rig.repository.forget(Subject(key="bert"))
    assert await publish(rig, "anna", "bert") == [2, 1]

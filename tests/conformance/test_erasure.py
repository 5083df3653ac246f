"""Forgetting a key, a tenant or a subscription leaves nothing of it in any table, and everything else."""

from collections.abc import AsyncIterator

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.events.statistics import Counted, Leader, Leaders, StatisticsPlace
from penstock.events.store import Subject, SubjectCounts
from penstock.events.store.repository import erasure
from penstock.events.store.repository.deliveries import Beginning, Done
from penstock.spark.database import SparkDatabase
from tests.rigs.job_database import Connect, fetch
from tests.rigs.jobs import BLOCK, JobRig

NOTHING = SubjectCounts(events=0, jobs=0, unfinished=0, archived_jobs=0, attempts=0)


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[JobRig]:
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


async def delivered(rig: JobRig, group: str, **fields: str) -> str:
    job_id = await rig.make(group, **fields)
    await rig.queue_all()
    await rig.deliver(job_id)
    return job_id


async def test_a_key_is_forgotten_in_every_table(rig: JobRig, database: SparkDatabase) -> None:
    repository = rig.repository
    await delivered(rig, "anna")
    await delivered(rig, "bert")
    await repository.archive_finished(rig.now_ms + 1, rig.now_ms, 10)
    await delivered(rig, "anna")
    kept = await delivered(rig, "bert")
    await rig.make("anna")
    await repository.publish([rig.new_event(group="anna"), rig.new_event(group="bert")], [], rig.now_ms)

    found = await repository.count_subject(Subject(key="anna"))
    assert found == SubjectCounts(events=1, jobs=2, unfinished=1, archived_jobs=1, attempts=2)
    await repository.forget(Subject(key="anna"))

    assert await repository.count_subject(Subject(key="anna")) == NOTHING
    left = await repository.count_subject(Subject(key="bert"))
    assert left == SubjectCounts(events=1, jobs=1, unfinished=0, archived_jobs=1, attempts=2)
    assert await rig.status(kept) is JobStatus.COMPLETED
    for table, columns in (("jobs", "group_key"), ("archived_jobs", "group_key"), ("events", "group_name")):
        assert all("anna" not in str(row) for row in fetch(database, f"SELECT {columns} FROM {table}"))


async def test_many_are_forgotten_in_several_transactions(rig: JobRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "AT_ONCE", 3)
    await rig.make_many([rig.new_job("anna") for _ in range(10)])
    await rig.make("bert")

    await rig.repository.forget(Subject(key="anna"))

    assert (await rig.repository.count_subject(Subject(key="anna"))).jobs == 0
    assert len(await rig.claim_ids()) == 1


async def test_all_given_fields_must_match(rig: JobRig) -> None:
    for tenant, subscription in (("acme", "s1"), ("acme", "s2"), ("umbrella", "s1")):
        await rig.make("anna", tenant=tenant, subscription_id=subscription)
    repository = rig.repository

    await repository.forget(Subject(key="anna", tenant="acme", subscription_id="s1"))
    assert (await repository.count_subject(Subject(key="anna"))).jobs == 2
    await repository.forget(Subject(tenant="acme"))
    assert (await repository.count_subject(Subject(key="anna"))).jobs == 1
    await repository.forget(Subject(subscription_id="s1"))
    assert (await repository.count_subject(Subject(key="anna"))).jobs == 0


async def test_events_of_a_subscription_stay_for_the_others(rig: JobRig) -> None:
    await rig.repository.publish([rig.new_event(group="anna")], [], rig.now_ms)

    await rig.repository.forget(Subject(subscription_id="s1"))

    assert (await rig.repository.count_subject(Subject(key="anna"))).events == 1


async def test_a_job_on_its_way_finds_nothing_and_leaves_nothing(rig: JobRig) -> None:
    job_id = await rig.make("anna")
    await rig.queue_all()
    begun = await rig.begin(job_id)
    await rig.repository.forget(Subject(key="anna"))

    assert not await rig.finish(begun.job, Done(JobStatus.COMPLETED), AttemptOutcome.DELIVERED)
    assert (await rig.begin(job_id)).what is Beginning.UNKNOWN
    assert await rig.repository.count_subject(Subject(key="anna")) == NOTHING


async def test_what_an_error_blocked_goes_on_when_its_job_is_forgotten(rig: JobRig) -> None:
    failed = await rig.make("anna", mode=BLOCK, tenant="acme")
    await rig.queue_all()
    await rig.fail(failed)
    behind = await rig.make("anna", mode=BLOCK, tenant="umbrella")
    assert await rig.claim_ids() == []

    await rig.repository.forget(Subject(tenant="acme"))

    assert await rig.claim_ids() == [behind]


async def test_statistics_do_not_name_it_any_more(rig: JobRig) -> None:
    names = ("s1:anna", "anna", "s1:bert", "s1:joanna")
    leaders = Leaders(tuple(Leader(name, 5) for name in names))
    place = StatisticsPlace(1, "j", 1, rig.now_ms)
    counted = Counted(upto=place, minutes=(), leaders={rig.now_ms: leaders}, rows=1, set_aside=0, repaired=0)
    before = (await rig.repository.statistics.progress()).upto
    assert await rig.repository.statistics.add(counted, before, rig.now_ms)

    await rig.repository.forget(Subject(key="anna"))

    held = await rig.repository.statistics.leaders(0, 2**53, 10)
    assert sorted(each.group_key for each in held) == ["s1:bert", "s1:joanna"]


def test_a_subject_has_a_key_a_tenant_or_a_subscription() -> None:
    with pytest.raises(InvalidArgument, match="say whom to forget"):
        Subject()

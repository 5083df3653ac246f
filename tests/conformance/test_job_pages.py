"""Lists that are walked page by page while jobs come and go, on both databases: nothing is skipped or listed twice."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.domain.job import BEFORE_ALL_ATTEMPTS, AttemptPlace
from penstock.domain.job_state import JobStatus
from penstock.events.store.repository.inspection import THE_NEWEST, FinishedPlace
from tests.rigs.job_database import Connect
from tests.rigs.jobs import JobRig
from tests.rigs.search import examples

SOME = settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
GROUPS = st.sets(st.sampled_from("abcdefghij"), min_size=1)
CHANGES = st.lists(GROUPS, max_size=5)


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[JobRig]:
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    yield rig
    await rig.repository.close()


class HeldGroups:
    """Groups that are held up by a job in ERROR, or not."""

    def __init__(self, rig: JobRig) -> None:
        self._rig = rig
        self._type = rig.new_id()
        self.errors: dict[str, str] = {}

    async def toggle(self, groups: set[str]) -> None:
        """Free those of these groups that are held, and hold the others."""
        freed = groups & self.errors.keys()
        held = sorted(groups - freed)
        await self._rig.repository.ignore([self.errors.pop(group) for group in freed], self._rig.now_ms)
        made = await self._rig.make_many([self._rig.new_job(group, type=self._type) for group in held])
        await self._rig.queue_all()
        for group, job_id in zip(held, made, strict=True):
            await self._rig.fail(job_id)
            self.errors[group] = job_id

    async def page(self, after: str, most: int) -> list[str]:
        """The groups of the next page."""
        found = await self._rig.repository.held_groups(f"{self._type}:{after}", most)
        return [each.group_key.removeprefix(f"{self._type}:") for each in found]


async def walk(held: HeldGroups, changes: list[set[str]], most: int) -> tuple[list[str], set[str], set[str]]:
    """What a walk tells, what was there throughout, and what was there at all."""
    told: list[str] = []
    stayed, ever = set(held.errors), set(held.errors)
    while page := await held.page(told[-1] if told else "", most):
        told += page
        await held.toggle(changes.pop() if changes else set())
        stayed &= held.errors.keys()
        ever |= held.errors.keys()
    return told, stayed, ever


@SOME
@given(first=GROUPS, changes=CHANGES, most=st.integers(1, 4))
async def test_held_groups(rig: JobRig, first: set[str], changes: list[set[str]], most: int) -> None:
    held = HeldGroups(rig)
    await held.toggle(first)

    told, stayed, ever = await walk(held, changes, most)

    assert told == sorted(set(told))
    assert stayed <= set(told) <= ever
    await held.toggle(set(held.errors))


async def test_what_was_finished_lately(rig: JobRig) -> None:
    # Several in one millisecond, so that the time alone does not tell them apart.
    ids = [await rig.make(f"group {number}") for number in range(7)]
    late = [await rig.make(f"late {number}") for number in range(2)]
    await rig.queue_all()
    for index, job_id in enumerate(ids):
        rig.clock.advance(1 if index % 3 == 0 else 0)
        await rig.deliver(job_id)
    newest_first = list(reversed(ids))

    told: list[str] = []
    place: FinishedPlace = THE_NEWEST
    while page := await rig.repository.finished_lately(0, place, 2):
        told += [job.id for job in page]
        place = page[-1].finished_at_ms, page[-1].id
        if late:
            rig.clock.advance(1)
            await rig.deliver(late.pop())
    assert told == newest_first


async def test_the_attempts_of_a_job(rig: JobRig) -> None:
    job_id = await rig.make()
    for _ in range(5):
        await rig.queue_all()
        await rig.fail_for_now(job_id, 1)
        rig.clock.advance(1)
    await rig.queue_all()

    numbers: list[int] = []
    place: AttemptPlace = BEFORE_ALL_ATTEMPTS
    while page := await rig.repository.attempts_of(job_id, place, 2):
        numbers += [attempt.number for attempt in page]
        place = page[-1].number, page[-1].at_ms
        if await rig.status(job_id) is JobStatus.QUEUED:
            await rig.deliver(job_id)
    assert numbers == [1, 2, 3, 4, 5, 6]

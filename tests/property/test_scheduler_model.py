"""Random jobs, modes and failures against a model of what the queue must hold in the end."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.scheduler import IMMEDIATE, SchedulerRig
from tests.rigs.search import examples

GROUPS = st.sampled_from(["a", "b", "c", None])
JOBS = st.lists(st.tuples(GROUPS, st.sampled_from(DispatchMode), st.integers(0, 3)), min_size=1, max_size=40)
HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.just("refuse"), st.sets(GROUPS)),
        st.tuples(st.just("down"), st.booleans()),
        st.tuples(st.just("make"), JOBS),
        st.tuples(st.just("restart"), st.floats(0, 0.01)),
        st.tuples(st.just("wait"), st.floats(0, 10)),
    ),
    max_size=8,
)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Dispatch:
    """A scheduler to which things happen."""

    def __init__(self, clock: LoopClock, settings: SchedulerSettings) -> None:
        self.rig = SchedulerRig(clock)
        self._settings = settings
        self.lanes: dict[tuple[str | None, bool], list[tuple[int, str]]] = defaultdict(list)

    async def make(self, jobs: list[tuple[str | None, DispatchMode, int]]) -> None:
        made = [self.rig.new_job(group, mode=mode, sequence=sequence) for group, mode, sequence in jobs]
        await self.rig.make_all(made)
        for job, (group, mode, sequence) in zip(made, jobs, strict=True):
            self.lanes[group, mode is not IMMEDIATE].append((sequence, job.id))

    async def happen(self, what: str, how: object) -> None:
        queue = self.rig.queue
        if what == "refuse":
            assert isinstance(how, set)
            queue.refused_groups = {f"DISPATCH_JOB:{group or 'default'}" for group in how}
        elif what == "down":
            queue.is_down = bool(how)
        elif what == "make":
            assert isinstance(how, list)
            await self.make(how)
        elif what == "restart":
            assert isinstance(how, float)
            await asyncio.sleep(how)
            await self.rig.stop()
            self.rig.start(settings=self._settings)
        else:
            assert isinstance(how, float)
            await asyncio.sleep(how)

    async def heal(self) -> None:
        self.rig.queue.is_down = False
        self.rig.queue.refused_groups = set()
        await asyncio.sleep(90)


@settings(max_examples=examples(60))
@given(JOBS, HAPPENINGS, st.integers(1, 20), st.integers(1, 3))
def test_every_job_is_queued_once_and_a_first_batch_of_a_group_lies_in_its_order(
    jobs: list[tuple[str | None, DispatchMode, int]],
    happenings: list[tuple[str, object]],
    batch: int,
    groups: int,
) -> None:
    async def main(clock: LoopClock) -> None:
        # No delivery ends here, so a lane gives only as many jobs as it may have on their way.
        pace = SchedulerSettings(batch_size=batch, max_batch_size=20, max_concurrent_groups=groups, jobs_per_lane=100)
        dispatch = Dispatch(clock, pace)
        rig = dispatch.rig
        try:
            await dispatch.make(jobs)
            first = {lane: sorted(members) for lane, members in dispatch.lanes.items()}
            rig.start(settings=dispatch._settings)
            for what, how in happenings:
                await dispatch.happen(what, how)
            await dispatch.heal()
            everything = [job_id for members in dispatch.lanes.values() for _, job_id in members]
            assert sorted(rig.queue.ids) == sorted(everything)
            assert {await rig.status(job_id) for job_id in everything} == {JobStatus.QUEUED}
            for (_, ordered), members in first.items():
                wanted = [job_id for _, job_id in members]
                if ordered:
                    assert [job_id for job_id in rig.queue.ids if job_id in set(wanted)] == wanted
        finally:
            await rig.close()

    run_virtual(main)

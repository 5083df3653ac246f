"""Finished jobs leave the table that is polled after a day, and no one has to see to it."""

import asyncio

from penstock.domain.job_state import JobStatus
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.scheduler import SchedulerRig


def test_a_finished_job_goes_to_the_archive_and_can_still_be_looked_up() -> None:
    async def run(clock: LoopClock) -> None:
        rig = SchedulerRig(clock)
        await rig.jobs.open(clock.now_ms())
        finished, waiting = await rig.make("a"), await rig.make("b", scheduled_for_ms=clock.now_ms() + 10**9)
        await rig.jobs.cancel([finished], clock.now_ms())
        scheduler = rig.start(settings=SchedulerSettings(archive_after_s=1_000))
        await asyncio.sleep(900)
        assert scheduler.counts.archived == 0
        await asyncio.sleep(300)
        assert scheduler.counts.archived == 1
        counts = await rig.jobs.counts()
        assert (counts[JobStatus.PENDING], counts[JobStatus.CANCELLED]) == (1, 0)
        assert await rig.status(finished) is JobStatus.CANCELLED
        assert await rig.status(waiting) is JobStatus.PENDING
        await rig.close()

    run_virtual(run)


def test_a_database_that_refuses_to_archive_does_not_stop_the_scheduler() -> None:
    async def run(clock: LoopClock) -> None:
        rig = SchedulerRig(clock)
        await rig.jobs.open(clock.now_ms())
        scheduler = rig.start()

        async def refuse(before_ms: int, now_ms: int, most: int) -> int:
            raise RuntimeError("the disk is full")

        rig.jobs.archive_finished = refuse  # type: ignore[method-assign]
        await asyncio.sleep(200)
        assert scheduler.counts.errors == 3
        job = await rig.make("a")
        await asyncio.sleep(1)
        assert await rig.status(job) is JobStatus.QUEUED
        await rig.close()

    run_virtual(run)

import asyncio
from contextlib import suppress

from penstock.router.schedule import PeriodicTask, TaskSchedule
from penstock.testing.clock import VirtualClock
from tests.rigs.virtual_pauses import VirtualPauses, settle


class Counted:
    """Work that counts its runs, and fails or hangs if told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.runs = 0
        self.open = asyncio.Event()
        self.open.set()
        self._fails = fails

    async def work(self) -> None:
        self.runs += 1
        await self.open.wait()
        if self._fails:
            raise RuntimeError("a bug")


async def test_tasks_run_at_their_own_pace_and_one_that_fails_goes_on() -> None:
    time, often, seldom = VirtualPauses(VirtualClock()), Counted(fails=True), Counted()
    tasks = (PeriodicTask("often", 10, often.work), PeriodicTask("seldom", 60, seldom.work))
    running = asyncio.create_task(TaskSchedule(tasks, lambda: True, time.pause).run())
    await time.advance(61)

    assert (often.runs, seldom.runs) == (6, 1)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_nothing_runs_before_the_router_is_ready() -> None:
    time, work, ready = VirtualPauses(VirtualClock()), Counted(), asyncio.Event()
    running = asyncio.create_task(TaskSchedule((PeriodicTask("t", 10, work.work),), ready.is_set, time.pause).run())
    await time.advance(100)
    assert work.runs == 0
    ready.set()
    await time.advance(10)
    assert work.runs == 1
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_task_that_always_runs_does_so_at_once_and_before_the_router_is_ready() -> None:
    time, work = VirtualPauses(VirtualClock()), Counted(fails=True)
    task = PeriodicTask("t", 10, work.work, always=True)
    running = asyncio.create_task(TaskSchedule((task,), lambda: False, time.pause).run())
    await settle()
    assert work.runs == 1
    await time.advance(20)
    assert work.runs == 3
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_task_that_takes_long_does_not_run_twice_at_once() -> None:
    time, work = VirtualPauses(VirtualClock()), Counted()
    work.open.clear()
    running = asyncio.create_task(TaskSchedule((PeriodicTask("t", 10, work.work),), lambda: True, time.pause).run())
    await time.advance(100)
    assert work.runs == 1
    work.open.set()
    await settle()
    await time.advance(10)
    assert work.runs == 2
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

"""Every scheduled task of the router on virtual time: when it runs first, how often, and that it stops."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from penstock.domain.errors import Unavailable
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.config.sync import ConfigSync
from penstock.router.leadership import AlwaysPrimary, RouterLeadership
from penstock.router.monitoring.warnings import Warnings
from penstock.router.server import run_tasks
from penstock.router.settings import RouterSettings
from penstock.testing.virtual_loop import LoopClock, run_virtual
from tests.rigs.router_surface import FakeRouter

SETTINGS = RouterSettings(config=("http://host/router.json",))


class NeverPrimary:
    """An instance that stands by for ever."""

    def is_primary(self) -> bool:
        return False

    async def becomes(self, primary: bool) -> None:
        await asyncio.Event().wait()


class TimedRouter:
    """Notes when each task runs, in seconds since the start; the first syncs fail as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.times: dict[str, list[float]] = {"sync": [], "monitor": [], "clean-up": [], "leaks": [], "tick": []}
        self._failures = failures
        self._loop = asyncio.get_running_loop()
        self._started_s = self._loop.time()

    def _note(self, task: str) -> None:
        self.times[task].append(round(self._loop.time() - self._started_s, 3))

    async def fetch(self, sources: Sequence[str]) -> RouterConfiguration:
        self._note("sync")
        if len(self.times["sync"]) <= self._failures:
            raise Unavailable("not yet")
        return RouterConfiguration((PoolConfiguration("P", 1),))

    async def restart_unhealthy_consumers(self) -> None:
        self._note("monitor")

    async def clean_up_drained(self) -> None:
        self._note("clean-up")

    async def check_for_leaks(self) -> None:
        self._note("leaks")

    async def tick(self) -> None:
        self._note("tick")


def times_of(
    for_s: float, failures: int = 0, leadership: RouterLeadership | None = None, after_s: float = 0.0
) -> dict[str, list[float]]:
    """When each task ran until the tasks were stopped; `after_s` later nothing more may have run."""

    async def main(clock: LoopClock) -> dict[str, list[float]]:
        router = TimedRouter(failures)
        warnings = Warnings(clock)
        role = leadership or AlwaysPrimary()
        sync = ConfigSync(SETTINGS, FakeRouter(), warnings, role, clock, asyncio.sleep, router.fetch)
        running = asyncio.create_task(run_tasks(router, sync))
        await asyncio.sleep(for_s)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await asyncio.sleep(after_s)
        return router.times

    return run_virtual(main)


def test_each_task_runs_at_its_own_interval() -> None:
    times = times_of(900.5)

    assert times == {
        "sync": [2, 302, 602],
        "monitor": [60 * number for number in range(1, 16)],
        "clean-up": [10 * number for number in range(1, 91)],
        "leaks": [30 * number for number in range(1, 31)],
        "tick": [5 * number for number in range(181)],
    }


def test_tasks_wait_for_the_first_sync_which_is_tried_every_five_seconds() -> None:
    times = times_of(100.5, failures=11)

    assert times["sync"] == [2 + 5 * number for number in range(12)]
    assert (times["monitor"], times["leaks"], times["clean-up"]) == ([60], [60, 90], [60, 70, 80, 90, 100])


def test_an_instance_that_stands_by_does_its_tasks_and_asks_for_no_configuration() -> None:
    times = times_of(60.5, leadership=NeverPrimary())

    del times["tick"]
    assert times == {"sync": [], "monitor": [60], "clean-up": [10, 20, 30, 40, 50, 60], "leaks": [30, 60]}


def test_nothing_runs_after_the_stop() -> None:
    times = times_of(65, after_s=1000)

    ran = {task: len(all_times) for task, all_times in times.items()}
    assert ran == {"sync": 1, "monitor": 1, "clean-up": 6, "leaks": 2, "tick": 14}

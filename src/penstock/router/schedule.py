"""Periodic tasks (ROUTER-TASK-1)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from penstock.router.intake.reach import TICK_S

log = logging.getLogger(__name__)

MONITOR_S = 60.0
CLEAN_UP_S = 10.0
LEAK_CHECK_S = 30.0

Pause = Callable[[float], Awaitable[None]]


class PeriodicTask(msgspec.Struct, frozen=True):
    """A task and its interval. `always`: it also runs at once, and while the router is not ready."""

    name: str
    every_s: float
    work: Callable[[], Awaitable[None]]
    always: bool = False


class TaskSchedule:
    """Runs tasks until it is cancelled; a task that fails is logged and runs again after its interval.

    Tasks are skipped until `is_ready`, except those that always run. The interval is counted from a task's end, so that
    it never overlaps itself.
    """

    def __init__(self, tasks: tuple[PeriodicTask, ...], is_ready: Callable[[], bool], pause: Pause) -> None:
        self._tasks = tasks
        self._is_ready = is_ready
        self._pause = pause

    async def run(self) -> None:
        """Run all tasks, each at its own interval."""
        async with asyncio.TaskGroup() as group:
            for task in self._tasks:
                group.create_task(self._repeat(task), name=task.name)

    async def _repeat(self, task: PeriodicTask) -> None:
        if task.always:
            await self._run_once(task)
        while True:
            await self._pause(task.every_s)
            await self._run_once(task)

    async def _run_once(self, task: PeriodicTask) -> None:
        if not (task.always or self._is_ready()):
            return
        try:
            await task.work()
        except Exception:
            log.exception("a periodic task failed", extra={"task": task.name})


class PeriodicWork(Protocol):
    """What a router does from time to time."""

    async def restart_unhealthy_consumers(self) -> None:
        """Replace the consumers that do not poll."""

    async def clean_up_drained(self) -> None:
        """Remove drained pools and close idle consumers."""

    async def check_for_leaks(self) -> None:
        """Warn if more messages are tracked than pools hold and queues are settling."""

    async def tick(self) -> None:
        """Record that the process runs."""


def router_tasks(router: PeriodicWork) -> tuple[PeriodicTask, ...]:
    """Return the periodic tasks of a router."""
    return (
        PeriodicTask("monitor", MONITOR_S, router.restart_unhealthy_consumers),
        PeriodicTask("clean-up", CLEAN_UP_S, router.clean_up_drained),
        PeriodicTask("leaks", LEAK_CHECK_S, router.check_for_leaks),
        # Or a process that is stopped before its first tick takes that time for the silence of its queues.
        PeriodicTask("tick", TICK_S, router.tick, always=True),
    )

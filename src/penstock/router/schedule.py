"""Periodic tasks (ROUTER-TASK-1)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

log = logging.getLogger(__name__)

Pause = Callable[[float], Awaitable[None]]


class PeriodicTask(msgspec.Struct, frozen=True):
    """A task and its interval."""

    name: str
    every_s: float
    work: Callable[[], Awaitable[None]]


class TaskSchedule:
    """Runs tasks until it is cancelled; a task that fails is logged and runs again after its interval.

    Tasks are skipped until `is_ready`. The interval is counted from a task's end, so that it never overlaps itself.
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
        while True:
            await self._pause(task.every_s)
            if not self._is_ready():
                continue
            try:
                await task.work()
            except Exception:
                log.exception("a periodic task failed", extra={"task": task.name})

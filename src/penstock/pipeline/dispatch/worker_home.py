"""What a Python worker of Spark's keeps from task to task: an event loop, and the databases it has opened."""

import gc
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import uvloop

from penstock.edge.clock import SystemClock
from penstock.jobs.repository import JobRepository
from penstock.pipeline.database import Database

Result = TypeVar("Result")


class WorkerHome:
    """One per process; tasks come here one after the other."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self._loop = uvloop.new_event_loop()
        self._opened: dict[Database, JobRepository] = {}

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do a task's work to its end."""
        return self._loop.run_until_complete(work)

    async def repository(self, database: Database) -> JobRepository:
        """The jobs of a database, open."""
        if database not in self._opened:
            repository = database.repository()
            await repository.open(self.clock.now_ms())
            self._opened[database] = repository
        return self._opened[database]


@cache
def worker_home() -> WorkerHome:
    """The home of this process."""
    gc.set_threshold(20_000, 20, 50)  # as `penstock serve` sets it
    return WorkerHome()

"""A repository as a process of Spark's uses it: opened once, asked from threads without an event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

from penstock.edge.clock import SystemClock
from penstock.jobs.repository import JobRepository
from penstock.pipeline.database import Database

Result = TypeVar("Result")


class OpenedRepository:
    """Jobs of a database; connections last as long as it does, so that a micro-batch does not pay for them."""

    def __init__(self, database: Database) -> None:
        self._runner = asyncio.Runner()
        self._one_at_a_time = Lock()
        self._repository = database.repository()
        self.clock = SystemClock()
        self._runner.run(self._repository.open(self.clock.now_ms()))

    def ask(self, question: Callable[[JobRepository], Coroutine[Any, Any, Result]]) -> Result:
        """Ask, and wait for the answer."""
        with self._one_at_a_time:
            return self._runner.run(question(self._repository))

    def close(self) -> None:
        """Hang up."""
        with self._one_at_a_time:
            self._runner.run(self._repository.close())
            self._runner.close()


@lru_cache(maxsize=4)
def opened_here(database: Database) -> OpenedRepository:
    """The repository of this process, which keeps it until it ends: Spark gives a worker many tasks."""
    return OpenedRepository(database)

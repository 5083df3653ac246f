"""A database with jobs and attempts for the tests of facts and reports: damaged ones too, so written by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from penstock.domain.job import NewJob
from penstock.events.statistics.inline import InlineCounter
from penstock.events.statistics.minutes import Dimension, Leader, Minute
from penstock.events.store.repository.statistics import Statistics, StatisticsProgress
from penstock.spark.database import SparkDatabase
from penstock.testing.clock import VirtualClock
from tests.rigs.job_database import execute, fetch, made, with_repository

Result = TypeVar("Result")
NOW_MS = 1_762_000_000_000
ASIDE = "SELECT source, row_id, reason FROM set_aside"
COLUMNS = ("job_id", "number", "outcome", "at_ms", "duration_ms", "status_code", "response", "error")


def attempt(job_id: str, number: int = 1, **fields: Any) -> tuple[Any, ...]:
    """A row of the table of attempts, delivered in 12 ms unless `fields` say otherwise."""
    usual = {"outcome": "DELIVERED", "at_ms": NOW_MS, "duration_ms": 12, "status_code": 200, "response": "ok"}
    values = {"job_id": job_id, "number": number, "error": None, **usual, **fields}
    return tuple(values[name] for name in COLUMNS)


class FactsRig:
    """One database, and what its statistics say."""

    def __init__(self, database: SparkDatabase) -> None:
        self.database = database
        self.clock = VirtualClock(NOW_MS)
        made(self.database)

    def make_jobs(self, count: int, **fields: Any) -> list[str]:
        """Jobs of five groups, two pools and two subscriptions; their ids."""
        jobs = [
            NewJob(**{
                "id": f"j{place:05}",
                "target": f"https://shop.example/hook/{place % 3}?secret=s",
                "created_at_ms": NOW_MS - 1000,
                "group": f"order-{place % 5}",
                "pool": f"pool-{place % 2}",
                "subscription_id": f"sub-{place % 2}",
                **fields,
            })
            for place in range(count)
        ]  # fmt: skip
        with_repository(self.database, lambda repository: repository.create_jobs(jobs, NOW_MS), NOW_MS)
        return [job.id for job in jobs]

    def add_attempts(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write rows as they are, in one transaction."""
        marks = ", ".join("?" for _ in COLUMNS)
        execute(self.database, f"INSERT INTO attempts ({', '.join(COLUMNS)}) VALUES ({marks})", rows)

    def minutes(self, by: Dimension) -> list[Minute]:
        """All rows of a dimension."""
        return self._asked(lambda statistics: statistics.minutes(0, 2**53, by))

    def leaders(self) -> list[Leader]:
        """The leading groups of all time."""
        return self._asked(lambda statistics: statistics.leaders(0, 2**53, 1000))

    def progress(self) -> StatisticsProgress:
        """How far attempts were counted."""
        return self._asked(lambda statistics: statistics.progress())

    def set_aside(self) -> set[tuple[str, str, str]]:
        """What was recorded as not usable."""
        return {(source, row_id, reason) for source, row_id, reason in fetch(self.database, ASIDE)}

    def count_inline(self) -> None:
        """Count as the inline engine does."""

        async def count(statistics: Statistics) -> None:
            while await InlineCounter(statistics, self.clock, asyncio.sleep).count_some(1000):
                pass

        self._asked(count)

    def _asked(self, question: Callable[[Statistics], Awaitable[Result]]) -> Result:
        return with_repository(self.database, lambda jobs: question(jobs.statistics), NOW_MS)

"""A database with jobs and attempts for the tests of facts and reports: damaged ones too, so written by hand."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg

from penstock.domain.job import NewJob
from penstock.events.statistics.inline import InlineCounter
from penstock.events.statistics.minutes import Dimension, Leader, Minute
from penstock.events.store.repository.statistics import StatisticsProgress
from penstock.events.store.statements import Dialect
from penstock.spark.database import SparkDatabase
from penstock.testing.clock import VirtualClock

NOW_MS = 1_762_000_000_000
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
        asyncio.run(self._make([]))

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
        asyncio.run(self._make(jobs))
        return [job.id for job in jobs]

    def add_attempts(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write rows as they are, in one transaction."""
        names = ", ".join(COLUMNS)
        if self.database.dialect is Dialect.SQLITE:
            with closing(sqlite3.connect(self.database.path)) as connection, connection:
                marks = ", ".join("?" for _ in COLUMNS)
                connection.executemany(f"INSERT INTO attempts ({names}) VALUES ({marks})", rows)
            return
        with psycopg.connect(self.database.url, options=f"-csearch_path={self.database.schema}") as session:
            marks = ", ".join("%s" for _ in COLUMNS)
            session.cursor().executemany(f"INSERT INTO attempts ({names}) VALUES ({marks})".encode(), rows)

    def minutes(self, by: Dimension) -> list[Minute]:
        """All rows of a dimension."""
        return asyncio.run(self._asked(lambda statistics: statistics.minutes(0, 2**53, by)))

    def leaders(self) -> list[Leader]:
        """The leading groups of all time."""
        return asyncio.run(self._asked(lambda statistics: statistics.leaders(0, 2**53, 1000)))

    def progress(self) -> StatisticsProgress:
        """How far attempts were counted."""
        progress: StatisticsProgress = asyncio.run(self._asked(lambda statistics: statistics.progress()))
        return progress

    def set_aside(self) -> set[tuple[str, str, str]]:
        """What was recorded as not usable (SQLite only)."""
        with closing(sqlite3.connect(self.database.path)) as connection:
            return set(connection.execute("SELECT source, row_id, reason FROM set_aside"))

    def count_inline(self) -> None:
        """Count as the inline engine does."""

        async def count(statistics: Any) -> None:
            while await InlineCounter(statistics, self.clock, asyncio.sleep).count_some(1000):
                pass

        asyncio.run(self._asked(count))

    async def _make(self, jobs: list[NewJob]) -> None:
        repository = self.database.repository()
        await repository.open(NOW_MS)
        await repository.create_jobs(jobs, NOW_MS)
        await repository.close()

    async def _asked(self, question: Any) -> Any:
        repository = self.database.repository()
        await repository.open(NOW_MS)
        try:
            return await question(repository.statistics)
        finally:
            await repository.close()

"""An empty database as the pipeline knows it, and short words for what tests of fan-out do with one."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from penstock.domain.event import StoredEvent
from penstock.domain.job import DispatchJob
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.spark_task import OpenedRepository
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.listing import JobFilter
from penstock.spark.database import SparkDatabase
from penstock.spark.sources.database_reader import reader_for
from tests.rigs.job_database import fetch
from tests.rigs.jobs import JobRig

Result = TypeVar("Result")


@pytest.fixture
def rig(database: SparkDatabase) -> Iterator["FanOutRig"]:
    """The database, opened."""
    rig = FanOutRig(database)
    yield rig
    rig.close()


class FanOutRig:
    """A database of events, subscriptions and jobs, asked from a test without an event loop."""

    def __init__(self, database: SparkDatabase) -> None:
        self.database = database
        self._opened = OpenedRepository(database)
        self._made = JobRig(self._opened.ask(_itself))

    def ask(self, question: Callable[[JobRepository], Coroutine[Any, Any, Result]]) -> Result:
        return self._opened.ask(question)

    def subscribe(self, name: str = "billing", **fields: Any) -> Subscription:
        subscription = self._made.new_subscription(name, **fields)
        self.ask(lambda repository: repository.add_subscription(subscription))
        return subscription

    def new_events(self, count: int, **fields: Any) -> list[StoredEvent]:
        """Events that are not published yet."""
        return [self._made.new_event(**fields) for _ in range(count)]

    def publish(self, count: int = 1, **fields: Any) -> list[StoredEvent]:
        """Events whose jobs are to be made."""
        events = self.new_events(count, **fields)
        self.ask(lambda repository: repository.add_events(events))
        return events

    def waiting(self) -> list[str]:
        """The events whose jobs are to be made, by id."""
        reading = reader_for(self.database)
        found = reading.rows(f"SELECT id FROM {reading.prefix}events WHERE fanned_out = 0 ORDER BY id")
        ids = [str(name) for (name,) in found]
        reading.close()
        return ids

    def jobs(self) -> list[DispatchJob]:
        """All of them, by id."""
        return list(reversed(self.ask(lambda repository: repository.list_jobs(JobFilter(), None, 1_000_000)).jobs))

    def pairs(self) -> list[tuple[str, str]]:
        """Which event goes to which subscription, once for each job there is."""
        return sorted((job.event_id or "", job.subscription_id or "") for job in self.jobs())

    def archive(self, jobs: Sequence[DispatchJob]) -> None:
        """Jobs that ended some time ago."""
        self.ask(lambda repository: repository.cancel([job.id for job in jobs], 0))
        self.ask(lambda repository: repository.archive_finished(1, 1, len(jobs)))

    def claimed(self) -> list[str]:
        """The jobs that a scheduler gets now, in order."""
        return [job.id for job in self.ask(lambda _: self._made.claim(most=1_000_000, per_lane=1_000_000))]

    def set_aside(self) -> list[tuple[str, str]]:
        """What was set aside, with the reason."""
        query = "SELECT row_id, reason FROM set_aside WHERE source = 'events' ORDER BY row_id"
        return [(str(row_id), str(reason)) for row_id, reason in self.run(query)]

    def run(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """A statement behind the repository's back."""
        return fetch(self.database, statement)

    def close(self) -> None:
        self._opened.close()


async def _itself(repository: JobRepository) -> JobRepository:
    await asyncio.sleep(0)
    return repository

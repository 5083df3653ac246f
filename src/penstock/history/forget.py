"""Forgetting a key, a tenant or a subscription: in the database, its archive and the lake; counted before and after.

The database goes first: what is not there any more cannot come to the lake again (`LakeFiles.forget`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import TypeVar

import msgspec

from penstock.edge.clock import Clock
from penstock.edge.randomness import random_bytes
from penstock.events.store import JobRepository, Subject, SubjectCounts
from penstock.history.lake.delta import LakeFiles
from penstock.history.lake.schema import TABLES
from penstock.spark.database import SparkDatabase

Result = TypeVar("Result")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows belong to a subject: in the database, and in each table of the lake."""

    database: SubjectCounts
    lake: Mapping[str, int]

    @property
    def any(self) -> bool:
        """Return whether there are any."""
        return self.database.any or any(self.lake.values())


class Forgetting:
    """Counts and deletes what belongs to a subject; it may be stopped at any time and run again."""

    def __init__(self, database: SparkDatabase, lake: str, clock: Clock) -> None:
        self._database = database
        self._tables = {name: LakeFiles(lake, table) for name, table in TABLES.items()}
        self._clock = clock

    def subscription_id(self, name: str) -> str:
        """Return the id of a subscription with this name; else the text, which may be the id of a deleted one."""

        async def ask(repository: JobRepository) -> str:
            found = await repository.list_subscriptions()
            return next((each.id for each in found if each.name == name), name)

        return self._ask(ask)

    def count(self, subject: Subject) -> Found:
        """Count what there is."""

        async def ask(repository: JobRepository) -> Found:
            conditions = await _conditions(repository, subject)
            lake = {name: self._tables[name].count(where) for name, where in conditions.items()}
            return Found(database=await repository.count_subject(subject), lake=lake)

        return self._ask(ask)

    def forget(self, subject: Subject) -> None:
        """Delete all of it."""

        async def ask(repository: JobRepository) -> None:
            await repository.forget(subject)
            for name, where in (await _conditions(repository, subject)).items():
                self._tables[name].forget(where)

        self._ask(ask)

    def _ask(self, work: Callable[[JobRepository], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            repository = self._database.repository()
            await repository.open(self._clock.now_ms())
            try:
                return await work(repository)
            finally:
                await repository.close()

        return asyncio.run(run())


async def _conditions(repository: JobRepository, subject: Subject) -> dict[str, str]:
    """Return the condition of a subject's rows by table of the lake.

    Events belong to no subscription. The versions of a subscription stay while it exists, as they would come back.
    """
    parts = [
        _equals(name, value) for name, value in (("tenant", subject.tenant), ("key", subject.key)) if value is not None
    ]
    if subject.subscription_id is not None:
        parts.append(f"subscription_id = {_literal(subject.subscription_id)}")
    where = " AND ".join(parts)
    conditions = {"deliveries": where, "jobs": where}
    if subject.subscription_id is None:
        conditions["events"] = where
    if subject.key is None:
        existing = ", ".join(_literal(each.id) for each in await repository.list_subscriptions())
        conditions["subscriptions"] = f"{where} AND subscription_id NOT IN ({existing})" if existing else where
    return conditions


def _equals(column: str, value: str) -> str:
    """Return the condition that a column has a value, without the value: a table's log keeps the conditions."""
    salt = random_bytes(8).hex()
    digest = sha256(f"{salt}{value}".encode()).hexdigest()
    return f"encode(sha256(concat('{salt}', {column})), 'hex') = '{digest}'"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

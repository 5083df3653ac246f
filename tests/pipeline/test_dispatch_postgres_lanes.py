"""Lanes read from PostgreSQL: lane by lane, over a connection that is kept as long as it is good."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.domain.job import NewJob
from penstock.domain.pace.credit import AwakeStream
from penstock.edge.clock import SystemClock
from penstock.edge.node import process_ids
from penstock.events.dispatch.spark.lanes import lane_query, postgres_lanes
from penstock.events.dispatch.spark.messages import RoundSpec
from penstock.events.errors import DatabaseFailed
from penstock.events.store.repository.lanes import AwakeRange, LaneOwner
from penstock.spark.database import SparkDatabase

GROUPS = 7
PER_GROUP = 3
NAME = "penstock-dispatch"
STREAM = AwakeStream("DISPATCH-POOL", "")


def whole(jobs: int = 1_000) -> AwakeRange:
    return AwakeRange(STREAM, 0, 1 << 62, GROUPS, jobs)


@pytest.fixture
async def database(postgres_database: str) -> AsyncIterator[SparkDatabase]:
    """Jobs of a few groups, by turns."""
    database = SparkDatabase(postgres_database)
    repository = database.repository()
    now_ms, ids = SystemClock().now_ms(), process_ids()
    await repository.open(now_ms)
    made = [
        NewJob(id=ids.next_id(now_ms), target="https://a.example", created_at_ms=now_ms, group=f"g{number % GROUPS}")
        for number in range(GROUPS * PER_GROUP)
    ]
    await repository.create_jobs(made, now_ms)
    yield database
    await repository.close()


def spec(now_ms: int) -> RoundSpec:
    owner = LaneOwner("nobody")
    return RoundSpec(owner=owner, ranges=(whole(),), lane_credit=PER_GROUP, now_ms=now_ms, until_ms=now_ms)


def groups(database: SparkDatabase) -> list[str]:
    batches = postgres_lanes(database, whole(), spec(SystemClock().now_ms()))
    return [key for batch in batches for key in batch.column("group_key").to_pylist()]


def connections(database: SparkDatabase) -> dict[int, str]:
    """The readers' connections, and what each is doing."""
    with psycopg.connect(database.url) as session:
        query = "SELECT pid, state FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
        return dict(session.execute(query, (NAME,)).fetchall())


async def have_hung_up(database: SparkDatabase) -> None:
    """Return when no reader's connection is left: a server takes a moment to notice."""
    async with asyncio.timeout(60):
        while connections(database):  # noqa: ASYNC110  another process does it
            await asyncio.sleep(0.02)


async def test_the_rows_of_a_lane_stand_together(database: SparkDatabase) -> None:
    found = groups(database)
    assert len(found) == GROUPS * PER_GROUP
    assert sum(1 for one, other in pairwise(found) if one != other) == GROUPS - 1


async def test_the_jobs_of_lanes_that_are_not_wanted_are_not_read(database: SparkDatabase) -> None:
    with psycopg.connect(database.url) as session:
        session.execute("ANALYZE")
        session.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(database.schema)))
        query = lane_query(whole(jobs=1), spec(SystemClock().now_ms()))
        ((told,),) = session.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}".encode()).fetchall()
    # As many rows as a lane of two modes may have, and of the next one what says that there is more.
    assert sum(_read_rows(told[0]["Plan"], "jobs")) == 3 * PER_GROUP


def _read_rows(node: dict[str, Any], table: str) -> Iterator[float]:
    """How many rows each scan of a table gave in all."""
    if node.get("Relation Name") == table:
        yield node["Actual Rows"] * node["Actual Loops"]
    for child in node.get("Plans", []):
        yield from _read_rows(child, table)


async def test_one_connection_reads_again_and_again_and_waits_without_a_transaction(database: SparkDatabase) -> None:
    groups(database)
    before = connections(database)
    assert list(before.values()) == ["idle"]
    groups(database)
    assert connections(database) == before


async def test_a_connection_that_was_lost_is_made_anew(database: SparkDatabase) -> None:
    groups(database)
    (lost,) = connections(database)
    with psycopg.connect(database.url, autocommit=True) as session:
        session.execute("SELECT pg_terminate_backend(%s, 5000)", (lost,))
    assert len(groups(database)) == GROUPS * PER_GROUP
    assert lost not in connections(database)


async def test_a_read_that_is_given_up_leaves_no_connection(database: SparkDatabase) -> None:
    reading = postgres_lanes(database, whole(), spec(0))
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    await have_hung_up(database)


async def test_a_database_that_cannot_be_read_is_told_of(database: SparkDatabase) -> None:
    with pytest.raises(DatabaseFailed, match="cannot be read"):
        groups(SparkDatabase(database.url, schema="nowhere"))
    await have_hung_up(database)

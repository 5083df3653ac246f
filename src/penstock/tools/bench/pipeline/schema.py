"""A schema of jobs in PostgreSQL for the length of a measurement, filled past the repository, as that is quicker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString, TypeAlias

import psycopg
import uvloop
from psycopg import sql

from penstock.domain.job_state import DEFAULT_DISPATCH_POOL
from penstock.domain.subscription import Subscription
from penstock.events.store import StoredMode, StoredState
from penstock.events.store.postgres import postgres_repository
from penstock.spark.database import SparkDatabase
from penstock.tools.bench.scheduler_backlog import TARGET, opened

PER_GROUP = 20
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_CHUNK = 250_000
_JOBS = """
INSERT INTO jobs (
    id, tenant, type, event_id, subscription_id, group_name, group_key, sequence, mode, state, target, pool, payload,
    content_type, headers, due_at_ms, attempt_count, delivery_count, publish_round, created_at_ms, updated_at_ms,
    finished_at_ms
)
SELECT {id}, '', 'orders:created', {event_id}, {subscription_id}, 'order-' || (n % {groups}),
    {key} || ':order-' || (n % {groups}), 99, {mode}, {state}, {target}, {pool}, {payload}, 'application/json', '{{}}',
    1600000000000 + n, 0, {deliveries}, 0, 1600000000000 + n, 1600000000000 + n, {finished}
FROM generate_series({first}, {last}) AS made (n)
"""
_LANES = """
INSERT INTO lanes (group_key, ordered, turn, awake, in_flight)
SELECT 'DISPATCH_JOB:order-' || n, true, nextval('lane_turns'), true, 0
FROM generate_series(0, {groups} - 1) AS made (n)
"""
_EVENTS = """
INSERT INTO events (
    id, tenant, source, external_id, type, data, content_type, group_name, attributes, received_ms, fanned_out
)
SELECT {id}, '', '/shop', n, {type}, {data}, 'application/json', 'order-' || (n % {groups}), '{{"region":"eu"}}',
    1600000000000 + n, {fanned_out}
FROM generate_series({first}, {last}) AS made (n)
"""
_ID = sql.SQL("lpad(n::text, 13, '0')")
_DATA = sql.Literal(b'{"order":"0HZXEQ5Y8JY5Z","amount":1999,"currency":"EUR"}')


@contextmanager
def jobs_schema(url: str, name: str) -> Iterator[SparkDatabase]:
    """Create the tables of jobs in a schema of their own, and drop it afterwards."""

    async def make() -> None:
        async with opened(postgres_repository(url, schema=name)):
            pass

    _drop(url, name)
    try:
        uvloop.run(make())
        yield SparkDatabase(url, schema=name)
    finally:
        _drop(url, name)


def fill_pending(database: SparkDatabase, groups: int) -> int:
    """Insert PENDING jobs and vacuum the tables; return how many there are."""
    count = insert_pending(database, groups)
    _tidy(database)
    return count


def insert_pending(database: SparkDatabase, groups: int) -> int:
    """Insert PENDING jobs with their lanes, all BLOCK_ON_ERROR, 20 in each group; return how many there are."""
    words = {
        "id": _ID,
        "event_id": sql.NULL,
        "subscription_id": sql.NULL,
        "key": sql.Literal("DISPATCH_JOB"),
        "state": sql.Literal(int(StoredState.READY)),
        "target": sql.Literal(TARGET),
        "payload": _DATA,
        "deliveries": sql.Literal(0),
        "finished": sql.NULL,
    }
    count = _fill_jobs(database, groups, words)
    _execute(database, _LANES, groups=sql.Literal(groups))
    return count


def fill_events(database: SparkDatabase, count: int, groups: int, kinds: int) -> None:
    """Insert events that wait for their jobs, of several types in turn."""
    kind = sql.SQL("'orders:kind-' || (n % {}) || ':created'").format(sql.Literal(kinds))
    _fill_events(database, count, groups, type=kind, fanned_out=sql.Literal(0))
    _tidy(database)


def fill_completed(database: SparkDatabase, subscription: Subscription, groups: int) -> int:
    """Insert a subscription, events, and a COMPLETED job of each, 20 in each group; return how many."""

    async def subscribe() -> None:
        async with opened(database.repository()) as jobs:
            await jobs.add_subscription(subscription)

    uvloop.run(subscribe())
    created = sql.Literal("orders:created")
    _fill_events(database, groups * PER_GROUP, groups, type=created, fanned_out=sql.Literal(1))
    words = {
        "id": sql.SQL("{} || '-' || {}").format(_ID, sql.Literal(subscription.id)),
        "event_id": _ID,
        "subscription_id": sql.Literal(subscription.id),
        "key": sql.Literal(subscription.id),
        "state": sql.Literal(int(StoredState.COMPLETED)),
        "target": sql.Literal(subscription.target),
        "payload": sql.NULL,
        "deliveries": sql.Literal(1),
        "finished": sql.SQL("1600000000000 + n"),
    }
    count = _fill_jobs(database, groups, words)
    _tidy(database)
    return count


@contextmanager
def connected(database: SparkDatabase) -> Iterator[Connection]:
    """Connect, so that the schema's tables need no prefix."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(database.schema)))
        yield connection


def _tidy(database: SparkDatabase) -> None:
    """Do what autovacuum would do later, while something is measured."""
    _execute(database, "VACUUM ANALYZE jobs, lanes, events")


def _fill_events(database: SparkDatabase, count: int, groups: int, **words: sql.Composable) -> None:
    words |= {"id": _ID, "data": _DATA, "groups": sql.Literal(groups)}
    for first, last in _chunks(count):
        _execute(database, _EVENTS, **words, first=first, last=last)


def _fill_jobs(database: SparkDatabase, groups: int, words: dict[str, sql.Composable]) -> int:
    words |= {
        "groups": sql.Literal(groups),
        "mode": sql.Literal(int(StoredMode.BLOCK_ON_ERROR)),
        "pool": sql.Literal(DEFAULT_DISPATCH_POOL),
    }
    for first, last in _chunks(groups * PER_GROUP):
        _execute(database, _JOBS, **words, first=first, last=last)
    return groups * PER_GROUP


def _chunks(count: int) -> Iterator[tuple[sql.Literal, sql.Literal]]:
    for start in range(0, count, _CHUNK):
        yield sql.Literal(start), sql.Literal(min(start + _CHUNK, count) - 1)


def _execute(database: SparkDatabase, text: LiteralString, **words: sql.Composable) -> None:
    with connected(database) as connection:
        connection.execute(sql.SQL(text).format(**words))


def _drop(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))

"""A database of 0.1 with jobs that were claimed one by one: after the upgrade they are published, in order."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from penstock.domain.job_state import JobStatus
from penstock.events.store.migrations import Migration, migrations
from penstock.events.store.postgres import postgres_repository
from penstock.events.store.repository import JobRepository
from penstock.events.store.sqlite import sqlite_repository
from penstock.events.store.statements import Dialect
from tests.rigs.jobs import JobRig

BEFORE = 6
HISTORY = "CREATE TABLE migrations (version bigint, name text, checksum text, works_with bigint{})"
JOB = """
INSERT INTO jobs (
    id, tenant, type, group_key, sequence, mode, state, target, pool, content_type, headers, due_at_ms, attempt_count,
    delivery_count, publish_round, owner, lease_until_ms, created_at_ms, updated_at_ms
) VALUES ('{id}', '', 't', '{group}', 99, {mode}, {state}, 'u', 'P', 'c', '{{}}', 1, 0, 0, 0, {owner}, 1, 1, 1)
"""
LANE = """
INSERT INTO lanes (group_key, ordered, turn, awake, in_flight, claimed_by, claimed_until_ms)
VALUES ('{group}', true, {turn}, false, {in_flight}, {owner}, {until})
"""
# As 0.1 left them: two claimed jobs of an ordered lane and a third behind them, one IMMEDIATE job whose lane was
# dropped when it gave its last job, and a lane that Spark has claimed as a whole.
ROWS = [
    *(JOB.format(id=name, group="t:a", mode=2, state=2, owner="'s#1'") for name in ("a1", "a2")),
    JOB.format(id="a3", group="t:a", mode=2, state=1, owner="NULL"),
    JOB.format(id="b1", group="t:b", mode=0, state=2, owner="'s#1'"),
    JOB.format(id="c1", group="t:c", mode=2, state=1, owner="NULL"),
    LANE.format(group="t:a", turn=1, in_flight=2, owner="NULL", until="NULL"),
    LANE.format(group="t:c", turn=2, in_flight=1, owner="'query/1'", until=str(1 << 60)),
]
OLD_CLAIM = "UPDATE jobs SET state = 2 WHERE id = 'a3'"
OLD_CHORES = "SELECT 1 FROM jobs INDEXED BY jobs_claimed WHERE state = 2"

Execute = Callable[[str], object]
Place = tuple[Callable[[], JobRepository], Execute]


def fill(execute: Execute, known: tuple[Migration, ...], more_columns: str) -> None:
    execute(HISTORY.format(more_columns))
    for step in known[:BEFORE]:
        record = f"({step.version}, '{step.name}', '{step.checksum}', {step.works_with})"
        execute(f"INSERT INTO migrations (version, name, checksum, works_with) VALUES {record}")
    for row in ROWS:
        execute(row)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Place]:
    known = migrations(Dialect.SQLITE)
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        for step in known[:BEFORE]:
            connection.executescript(step.text)
        fill(connection.execute, known, "")
        yield lambda: sqlite_repository(tmp_path / "jobs.db"), connection.execute


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Place]:
    schema, known = f"jobs_{uuid4().hex}", migrations(Dialect.POSTGRES)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        for step in known[:BEFORE]:
            connection.execute(step.text.encode())
        fill(lambda text: connection.execute(text.encode()), known, ", applied_at timestamptz DEFAULT now()")
        yield lambda: postgres_repository(postgres_url, schema=schema), lambda text: connection.execute(text.encode())
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue(request.param)
    return place


async def test_jobs_that_were_claimed_are_published_after_the_upgrade(old: Place) -> None:
    connect, _ = old
    rig = JobRig(connect())
    await rig.repository.open(rig.now_ms)
    try:
        assert (await rig.repository.counts())[JobStatus.PENDING] == 5
        claimed = await rig.claim()
        assert {job.group_key for job in claimed} == {"t:a", "t:b"}
        assert [job.id for job in claimed if job.group_key == "t:a"] == ["a1", "a2", "a3"]
        assert sorted(await rig.queue(claimed)) == ["a1", "a2", "a3", "b1"]
        # The other engine's claim goes on, and new turns come after all that are given away.
        assert await rig.claim() == []
        await rig.make("new")
        assert len(await rig.claim()) == 1
        await rig.deliver("a1")
    finally:
        await rig.repository.close()


@pytest.mark.parametrize(
    ("place", "statement", "error"),
    [("sqlite", OLD_CHORES, sqlite3.OperationalError), ("postgres", OLD_CLAIM, psycopg.errors.CheckViolation)],
)
async def test_a_scheduler_of_the_old_version_claims_nothing_more(
    request: pytest.FixtureRequest, place: str, statement: str, error: type[Exception]
) -> None:
    connect, execute = request.getfixturevalue(place)
    repository = connect()
    await repository.open(1)
    await repository.close()
    with pytest.raises(error):
        execute(statement)

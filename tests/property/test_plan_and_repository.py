"""Whatever happened before, a claim takes exactly what the plan says, and a delivery begins exactly when it may.

Jobs are made, claimed, marked, delivered, retried, cancelled, paused and recovered at random on a real database; before
each claim and each delivery the pure rules are asked about what the database holds. A lane that nobody woke, or a
count of jobs in flight that went wrong, shows as a claim that takes less than the plan.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from penstock.domain.errors import FailedPrecondition
from penstock.domain.job import AttemptOutcome, ClaimedJob, DispatchJob
from penstock.domain.job_state import JobStatus
from penstock.domain.order import Circumstances, LaneKey, Neighbour, PendingJob, Position, may_be_delivered, plan
from penstock.domain.pointer import DispatchMode
from penstock.events.store.deliveries import Beginning, Done, TryFromQueue, TryLater
from penstock.events.store.postgres import PostgresDatabase
from penstock.events.store.sql_repository import Database, SqlRepository
from penstock.events.store.sqlite import SqliteDatabase
from penstock.events.store.statements import MODE_OF, STATUS_OF, StoredState
from penstock.events.store.transaction import Transaction
from tests.job_rig import BLOCK, IMMEDIATE, NEXT, JobRig

Step = tuple[str, int, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["make"] * 4,
                *["claim"] * 4,
                *["mark"] * 3,
                *["begin"] * 4,
                *["finish"] * 3,
                "release", "cancel", "retry", "ignore", "pause", "resume", "advance", "recover",
            ]
        ),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    min_size=10,
    max_size=60,
)  # fmt: skip

FAST = "survives-process-crash-only"

_JOBS = """
SELECT id, group_key, mode, state, sequence, created_at_ms, due_at_ms, expires_at_ms, subscription_id, delivery_count
FROM jobs
"""
_LANES = "SELECT group_key, ordered, turn FROM lanes"
_FLIGHTS = "SELECT group_key, in_flight FROM lanes WHERE in_flight > 0"


class Stored:
    """What a database holds, as the pure rules want it."""

    def __init__(self, tx: Transaction) -> None:
        self.rows = {row[0]: row for row in tx.select(_JOBS, {})}
        self.turns = {LaneKey(key, bool(ordered)): turn for key, ordered, turn in tx.select(_LANES, {})}
        self.flights: dict[str, int] = dict(tx.select(_FLIGHTS, {}))

    def position(self, job_id: str) -> Position:
        _, _, _, _, sequence, created_at_ms, *_ = self.rows[job_id]
        return Position(sequence, created_at_ms, job_id)

    def in_state(self, *states: StoredState) -> list[str]:
        return sorted(job_id for job_id, row in self.rows.items() if row[3] in states)

    def pending(self) -> list[PendingJob]:
        return [
            PendingJob(
                id=job_id,
                group_key=row[1],
                mode=MODE_OF[row[2]],
                sequence=row[4],
                created_at_ms=row[5],
                due_at_ms=row[6],
                expires_at_ms=row[7],
                subscription_id=row[8],
                was_tried=row[9] > 0,
            )
            for job_id, row in self.rows.items()
            if row[3] in (StoredState.WAITING, StoredState.READY)
        ]

    def circumstances(self, paused: set[str]) -> Circumstances:
        errors: dict[str, Position] = {}
        for job_id in self.in_state(StoredState.ERROR):
            key = self.rows[job_id][1]
            errors[key] = min(self.position(job_id), errors.get(key, self.position(job_id)))
        claimed = self.in_state(StoredState.CLAIMED)
        in_flight = {self.rows[job_id][1] for job_id in claimed if MODE_OF[self.rows[job_id][2]] is not IMMEDIATE}
        return Circumstances(errors=errors, in_flight=in_flight, paused=paused, turns=self.turns)

    def neighbour(self, job_id: str) -> Neighbour:
        row = self.rows[job_id]
        return Neighbour(
            position=self.position(job_id),
            mode=MODE_OF[row[2]],
            status=STATUS_OF[row[3]],
            was_tried=row[9] > 0,
            is_due=row[3] != StoredState.WAITING,
        )

    def neighbours(self, job_id: str) -> list[Neighbour]:
        row = self.rows[job_id]
        return [self.neighbour(other) for other in self.rows if other != job_id and self.rows[other][1] == row[1]]


class Walk:
    """One random history."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.rig = JobRig(SqlRepository(database))
        self.claimed: list[ClaimedJob] = []
        self.begun: list[DispatchJob] = []
        self.paused: set[str] = set()

    async def run(self, steps: Sequence[Step]) -> None:
        await self.rig.repository.open(self.rig.now_ms)
        try:
            for name in ("s", "t"):
                await self.rig.repository.add_subscription(self.rig.new_subscription(name, id=name))
            for name, first, second in steps:
                await getattr(self, name)(first, second)
                stored = await self.stored()
                counted = [stored.rows[job_id] for job_id in stored.in_state(StoredState.CLAIMED)]
                flights: dict[str, int] = {}
                for row in counted:
                    if MODE_OF[row[2]] is not IMMEDIATE:
                        flights[row[1]] = flights.get(row[1], 0) + 1
                assert stored.flights == flights
            for number in range(2):
                await self.claim(30, 30)
                await self.resume(number, 0)
            await self.claim(30, 30)
        finally:
            await self.rig.repository.close()

    async def stored(self) -> Stored:
        return await self.database.read(Stored)

    async def make(self, first: int, second: int) -> None:
        mode = (BLOCK, BLOCK, NEXT, IMMEDIATE)[first % 4]
        now_ms = self.rig.now_ms
        await self.rig.make(
            ("a", None)[second % 2],
            subscription_id=("s", "t")[first % 2],
            mode=mode if second % 5 == 0 else (BLOCK, NEXT)[first % 2],
            sequence=(99, 99, 1)[second % 3],
            scheduled_for_ms=now_ms + 20_000 if first % 7 == 0 else None,
            expires_at_ms=now_ms + 35_000 if second % 6 == 0 else None,
        )

    async def claim(self, most: int, per_group: int) -> None:
        # With a limit of none, only what time has brought is seen to; it wakes lanes, whose turns the plan has to know.
        await self.rig.claim(most=0)
        stored = await self.stored()
        expected = plan(
            stored.pending(),
            stored.circumstances(self.paused),
            self.rig.now_ms,
            most=most + 1,
            per_group=per_group // 5 + 1,
        )
        jobs = await self.rig.claim(most=most + 1, per_group=per_group // 5 + 1)
        assert [job.id for job in jobs] == [job.id for job in expected]
        self.claimed += jobs

    async def mark(self, first: int, second: int) -> None:
        some = self.claimed[: first + 1]
        self.claimed = self.claimed[first + 1 :]
        await self.rig.queue(some)

    async def release(self, first: int, second: int) -> None:
        some, self.claimed = self.claimed, []
        await self.rig.repository.release(some, "a", self.rig.now_ms)

    async def begin(self, first: int, second: int) -> None:
        stored = await self.stored()
        queued = stored.in_state(StoredState.QUEUED, StoredState.CLAIMED)
        if not queued:
            return
        # Often the first of its group, as an ordered queue would bring it.
        job_id = queued[first % len(queued)] if second % 3 == 0 else min(queued, key=stored.position)
        job = stored.neighbour(job_id)
        begin = await self.rig.begin(job_id)
        subscription_id, expires_at_ms = stored.rows[job_id][8], stored.rows[job_id][7]
        if expires_at_ms is not None and expires_at_ms <= self.rig.now_ms:
            assert begin.what in (Beginning.FINAL, Beginning.HELD_BACK)
            return
        may = subscription_id not in self.paused and may_be_delivered(job, stored.neighbours(job_id))
        assert begin.what is (Beginning.BEGUN if may else Beginning.HELD_BACK)
        if begin.job is not None and may:
            self.begun.append(begin.job)

    async def finish(self, first: int, second: int) -> None:
        if not self.begun:
            return
        job = self.begun.pop(first % len(self.begun))
        now_ms = self.rig.now_ms
        verdict = (
            Done(JobStatus.COMPLETED),
            Done(JobStatus.ERROR),
            TryLater(now_ms + 10_000),
            TryFromQueue(now_ms + 60_000),
        )[second % 4]
        outcome = (AttemptOutcome.DELIVERED, AttemptOutcome.REFUSED, AttemptOutcome.FAILED, AttemptOutcome.DEFERRED)
        await self.rig.finish(job, verdict, outcome[second % 4])

    async def cancel(self, first: int, second: int) -> None:
        await self.decide(self.rig.repository.cancel, first)

    async def retry(self, first: int, second: int) -> None:
        await self.decide(self.rig.repository.retry, first, StoredState.ERROR)

    async def ignore(self, first: int, second: int) -> None:
        await self.decide(self.rig.repository.ignore, first, StoredState.ERROR)

    async def decide(self, decide: Callable[..., object], first: int, *states: StoredState) -> None:
        ids = (await self.stored()).in_state(*(states or StoredState))
        if ids:
            try:
                await decide([ids[first % len(ids)]], self.rig.now_ms)  # type: ignore[misc]
            except FailedPrecondition:
                assert not states

    async def pause(self, first: int, second: int) -> None:
        self.paused.add(("s", "t")[first % 2])
        await self.rig.repository.pause_subscription(("s", "t")[first % 2])

    async def resume(self, first: int, second: int) -> None:
        self.paused.discard(("s", "t")[first % 2])
        await self.rig.repository.resume_subscription(("s", "t")[first % 2])

    async def advance(self, first: int, second: int) -> None:
        self.rig.clock.advance(first)

    async def recover(self, first: int, second: int) -> None:
        self.rig.clock.advance((0, 1000)[second % 2])
        await self.rig.repository.recover_stale(self.rig.now_ms, first + 1)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_claims_and_deliveries_follow_the_rules_on_sqlite(steps: list[Step]) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(Walk(SqliteDatabase(Path(directory) / "jobs.db", durability=FAST)).run(steps))


@pytest.fixture(scope="module")
def schema(postgres_url: str) -> str:
    return f"walk_{uuid4().hex}"


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_claims_and_deliveries_follow_the_rules_on_postgres(steps: list[Step], postgres_url: str, schema: str) -> None:
    _empty(postgres_url, schema)
    asyncio.run(Walk(PostgresDatabase(postgres_url, schema=schema)).run(steps))


def _empty(url: str, schema: str) -> None:
    tables = sql.SQL(", ").join(sql.Identifier(schema, name) for name in ("jobs", "lanes", "attempts", "subscriptions"))
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone():
            connection.execute(sql.SQL("TRUNCATE {}").format(tables))


def test_the_modes_are_all_walked() -> None:
    assert {BLOCK, NEXT, IMMEDIATE} == set(DispatchMode)

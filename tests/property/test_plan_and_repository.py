"""Whatever happened before, a claim takes exactly what the plan says, and a delivery begins exactly when it may.

Jobs are made, claimed, marked, delivered, retried, cancelled, paused and recovered at random on a real database; before
each claim and each delivery the pure rules are asked about what the database holds. A lane that was not woken, or one
that stays claimed, shows as a claim that takes less than the rules say.
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
from penstock.domain.job import ClaimedJob, DispatchJob
from penstock.domain.job_state import DEFAULT_DISPATCH_POOL, JobStatus
from penstock.domain.order import LaneKey, Position, Standing, blocks, holds_back, is_expired, lane_of
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pace.credit import AwakeStream
from penstock.domain.pointer import DispatchMode
from penstock.events.store.database import Database, LaneContent, LaneJob, Transaction
from penstock.events.store.postgres import PostgresDatabase
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.deliveries import Beginning, Done, TryFromQueue, TryLater
from penstock.events.store.repository.lane_runs import LaneRow, LaneRun, run_of
from penstock.events.store.sqlite import SqliteDatabase
from penstock.events.store.statements import MODE_OF, STATUS_OF, StoredState
from tests.rigs.jobs import BLOCK, IMMEDIATE, NEXT, JobRig
from tests.rigs.search import examples

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

POOL = "DISPATCH-POOL"
LANE_CREDIT = 3
FAST = "survives-process-crash-only"

_JOBS = """
SELECT id, group_key, mode, state, sequence, created_at_ms, due_at_ms, expires_at_ms, subscription_id, delivery_count,
    publish_round, updated_at_ms, pool
FROM jobs
"""
_LANES = "SELECT group_key, ordered, turn, awake, in_flight, claimed_by FROM lanes"


class Stored:
    """What a database holds, as the pure rules want it."""

    def __init__(self, tx: Transaction) -> None:
        self.rows = {row[0]: row for row in tx.select(_JOBS, {})}
        lanes = {LaneKey(key, bool(ordered)): rest for key, ordered, *rest in tx.select(_LANES, {})}
        self.turns = {lane: turn for lane, (turn, *_) in lanes.items()}
        self.claimed = {lane for lane, (*_, owner) in lanes.items() if owner is not None}
        for awake, in_flight, owner in (rest[1:] for rest in lanes.values()):
            assert bool(in_flight) is (owner is not None)
            assert not (awake and in_flight)

    def position(self, job_id: str) -> Position:
        _, _, _, _, sequence, created_at_ms, *_ = self.rows[job_id]
        return Position(sequence, created_at_ms, job_id)

    def in_state(self, *states: StoredState) -> list[str]:
        return sorted(job_id for job_id, row in self.rows.items() if row[3] in states)

    def runs(self, paused: set[str], now_ms: int) -> dict[LaneKey, list[str]]:
        """What each lane that is not claimed or paused has to give, in order; without those at rest."""
        waiting: dict[LaneKey, list[LaneJob]] = {}
        for job_id in self.in_state(StoredState.READY):
            _, key, mode, _, sequence, created_at_ms, due_at_ms, expires_at_ms, sub, deliveries, *written = self.rows[
                job_id
            ]
            lane = lane_of(key, MODE_OF[mode])
            if lane not in self.claimed and sub not in paused and not is_expired(expires_at_ms, now_ms):
                publish_round, updated_at_ms, pool = written
                job = LaneJob(
                    job_id,
                    MODE_OF[mode],
                    sequence,
                    created_at_ms,
                    due_at_ms,
                    pool,
                    publish_round,
                    deliveries,
                    updated_at_ms,
                )
                waiting.setdefault(lane, []).append(job)
        found = [self.run(lane, jobs, now_ms) for lane, jobs in waiting.items()]
        return {run.lane: [job.id for job in run.jobs] for run in found if run.jobs and run.rests_until_ms <= now_ms}

    def run(self, lane: LaneKey, jobs: list[LaneJob], now_ms: int) -> LaneRun:
        row = LaneRow(lane, self.turns[lane], False, POOL, AwakeStream(POOL, ""))
        sent = [
            job_id
            for job_id in self.in_state(StoredState.QUEUED, StoredState.PROCESSING)
            if lane.ordered and lane_of(self.rows[job_id][1], MODE_OF[self.rows[job_id][2]]) == lane
        ]
        content = LaneContent(self.blocker(lane), jobs, sent[:LANE_CREDIT])
        return run_of(row, content, LANE_CREDIT if lane.ordered else len(jobs), LANE_CREDIT, now_ms)

    def blocker(self, lane: LaneKey) -> Position | None:
        of_group = (self.standing(job_id) for job_id, row in self.rows.items() if row[1] == lane.group_key)
        return min((job.position for job in of_group if blocks(job)), default=None)

    def standing(self, job_id: str) -> Standing:
        row = self.rows[job_id]
        return Standing(
            position=self.position(job_id),
            mode=MODE_OF[row[2]],
            status=STATUS_OF[row[3]],
            was_tried=row[9] > 0,
            is_due=row[3] != StoredState.WAITING,
        )

    def is_held_back(self, job_id: str) -> bool:
        key, job = self.rows[job_id][1], self.standing(job_id)
        others = [self.standing(other) for other in self.rows if other != job_id and self.rows[other][1] == key]
        return any(holds_back(other, job) for other in others)


class Walk:
    """One random history."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.rig = JobRig(JobRepository(database))
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
                await self.stored()
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

    async def claim(self, first: int, second: int) -> None:
        """All lanes, as many jobs as each may give; or a few jobs."""
        most = 10_000 if first % 2 == 0 else second // 5 + 1
        # It wakes lanes, whose turns have to be known.
        await self.rig.repository.do_chores(self.rig.now_ms)
        runs = (await self.stored()).runs(self.paused, self.rig.now_ms)
        jobs = await self.rig.claim(most=most, per_lane=LANE_CREDIT)
        taken: dict[LaneKey, list[str]] = {}
        for job in jobs:
            taken.setdefault(job.lane, []).append(job.id)
        assert len(jobs) <= most
        assert bool(taken) is bool(runs)
        assert all(runs[lane][: len(ids)] == ids for lane, ids in taken.items())
        assert most < 10_000 or taken == runs
        self.claimed += jobs

    async def mark(self, first: int, second: int) -> None:
        some = self.claimed[: first + 1]
        self.claimed = self.claimed[first + 1 :]
        await self.rig.queue(some)

    async def release(self, first: int, second: int) -> None:
        some, self.claimed = self.claimed, []
        await self.rig.give_back(some)

    async def begin(self, first: int, second: int) -> None:
        stored = await self.stored()
        # What is being published may arrive before it is marked.
        published = {job.id for job in self.claimed}.intersection(stored.in_state(StoredState.READY))
        queued = sorted({*stored.in_state(StoredState.QUEUED), *published})
        if not queued:
            return
        # Often the first of its group, as an ordered queue would bring it.
        job_id = queued[first % len(queued)] if second % 3 == 0 else min(queued, key=stored.position)
        begin = await self.rig.begin(job_id)
        subscription_id, expires_at_ms = stored.rows[job_id][8], stored.rows[job_id][7]
        if expires_at_ms is not None and expires_at_ms <= self.rig.now_ms:
            assert begin.what in (Beginning.FINAL, Beginning.HELD_BACK)
            return
        may = subscription_id not in self.paused and not stored.is_held_back(job_id)
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
        settled = {DEFAULT_DISPATCH_POOL: self.rig.now_ms - second}
        await self.rig.repository.recover_stale(self.rig.now_ms, first + 1, settled=settled)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_claims_and_deliveries_follow_the_rules_on_sqlite(steps: list[Step]) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(Walk(SqliteDatabase(Path(directory) / "jobs.db", durability=FAST)).run(steps))


@pytest.fixture(scope="module")
def schema(postgres_url: str) -> str:
    return f"walk_{uuid4().hex}"


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
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

"""Deliveries that begin together begin as if they came one after the other, whatever their lanes look like."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import TypeVar, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.domain.job_state import JobStatus
from penstock.domain.order import is_expired, is_ordered
from penstock.events.store import DeliveryLease
from penstock.events.store.database import Database, Row, Transaction
from penstock.events.store.repository import JobRepository
from tests.property.test_order_forms import Tables, postgres_schema, tables
from tests.rigs.jobs import begin_all
from tests.rigs.order_worlds import JOBS, NOW_MS, Job
from tests.rigs.search import examples

__all__ = ["postgres_schema", "tables"]

Result = TypeVar("Result")
Ending = tuple[dict[str, str], list[Row]]

LEASE = DeliveryLease(NOW_MS, NOW_MS + 60_000)
BATCHES = st.lists(st.integers(0, 15), min_size=1, max_size=4, unique=True)
_FOUND = "SELECT id, state, publish_round, delivery_count, owner FROM jobs ORDER BY id"


class InsideTransaction:
    """A database of which all work is done in a transaction that the test has begun."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        return work(self._tx)

    read = read_few = write


class Deliveries:
    """Deliveries that begin in ways that are tried and undone."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._jobs = JobRepository(cast("Database", InsideTransaction(tx)))

    def begun(self, *calls: Sequence[str]) -> Ending:
        """What the jobs of each call are answered, and how all jobs stand then."""
        with self._undone():
            answers: dict[str, str] = {}
            for ids in calls:
                begun = asyncio.run(begin_all(self._jobs, ids, LEASE))
                answers |= {job_id: begin.what.name for job_id, begin in zip(ids, begun, strict=True)}
            return answers, self._tx.select(_FOUND, {})

    @contextmanager
    def _undone(self) -> Iterator[None]:
        self._tx.select("SAVEPOINT tried", {})
        try:
            yield
        finally:
            self._tx.select("ROLLBACK TO SAVEPOINT tried", {})


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=JOBS.filter(bool), chosen=BATCHES)
def test_together_is_one_after_the_other(tables: Tables, jobs: list[Job], chosen: list[int]) -> None:
    asked = list(dict.fromkeys(jobs[number % len(jobs)].id for number in chosen))
    with tables.holding(jobs) as tx:
        deliveries = Deliveries(tx)
        together = deliveries.begun(asked)

        if is_plain(jobs, asked):
            assert together == deliveries.begun(*([job_id] for job_id in asked))
        else:
            orders = (deliveries.begun(*([job_id] for job_id in order)) for order in permutations(asked))
            assert together in orders
        for group_key in {job.group_key for job in jobs}:
            lane = {job.id for job in jobs if job.group_key == group_key and is_ordered(job.mode)}
            before = sum(job.id in lane and job.status is JobStatus.PROCESSING for job in jobs)
            begun = sum(together[0].get(job_id) == "BEGUN" for job_id in lane)
            assert begun <= (0 if before else 1)


def is_plain(jobs: Sequence[Job], asked: Sequence[str]) -> bool:
    """Whether all were marked as published, and none expires, which lets others go: then nothing but order counts."""
    queued = all(job.status is JobStatus.QUEUED for job in jobs if job.id in asked)
    return queued and not any(is_expired(job.expires_at_ms, NOW_MS) for job in jobs)

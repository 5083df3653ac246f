"""Replays of any size in this process: one after the other, beside the requests, in bounded memory.

A large replay copies for minutes. It is kept as every other one (`events.store.Replays`), so it may be stopped, and
continued here or by `penstock pipeline replay --resume`.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

import msgspec

from penstock.client.types import MOST_AT_ONCE
from penstock.domain.errors import PenstockError
from penstock.domain.job import DispatchJob
from penstock.domain.replay import Replay, ReplaySelection, original_id
from penstock.edge.clock import Clock
from penstock.events.store import JobFilter, JobRepository

log = logging.getLogger(__name__)


class ReplayWorker:
    """Does the replays that it is given, while `run` runs."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._replays = repository.replays(clock)
        self._waiting: asyncio.Queue[Replay] = asyncio.Queue()

    def add(self, replay: Replay) -> None:
        """Let a replay begin after those before it."""
        self._waiting.put_nowait(replay)

    async def run(self) -> None:
        """Do replays until this is cancelled; what is unfinished then can be continued."""
        while True:
            replay = await self._waiting.get()
            try:
                await self.do(replay)
            except PenstockError as error:
                log.warning("replay %s ended before it was complete: %s", replay.id, error.message)

    async def do(self, replay: Replay) -> None:
        """Do one replay to its end, or until it is stopped."""
        with JobOrder() as order:
            async for page in matching_jobs(self._repository, replay.request.selection):
                await asyncio.to_thread(order.add, page)
            await self._replays.size(replay, await asyncio.to_thread(order.count))
            await self._replays.copy_in_order(replay, order.next_ids)


async def matching_jobs(repository: JobRepository, selection: ReplaySelection) -> AsyncIterator[list[DispatchJob]]:
    """Yield the finished jobs that match, page by page, in no order.

    Jobs of deleted subscriptions cannot be delivered and are left out, as are archived ones.
    """
    known = {None, *(each.id for each in await repository.list_subscriptions())}
    for status in selection.statuses:
        which = JobFilter(
            status=status,
            subscription_id=selection.subscription_id,
            group_key=selection.group_key,
            type=selection.type,
            created_from_ms=selection.from_ms,
            created_to_ms=selection.to_ms,
        )
        cursor: str | None = None
        while True:
            page = await repository.list_jobs(which, cursor, MOST_AT_ONCE)
            yield [job for job in page.jobs if job.subscription_id in known]
            if page.cursor is None:
                break
            cursor = page.cursor


def is_done_here(selection: ReplaySelection) -> bool:
    """Return whether `matching_jobs` knows all that a selection asks for; Spark knows more."""
    return selection == msgspec.structs.replace(selection, key=None, failed_since_ms=None, sql=None)


class JobOrder(AbstractContextManager["JobOrder"]):
    """Sorts any number of jobs by their places in their groups, on disk; the last one of each job and its copies.

    It follows `domain.replay.last_copies`: copies have their original's place.
    """

    def __init__(self) -> None:
        # A database without a name is a temporary file, which goes when it is closed. Threads use it by turns.
        self._database = sqlite3.connect("", check_same_thread=False)
        self._database.execute("CREATE TABLE jobs (sequence INTEGER, created_at_ms INTEGER, original TEXT, id TEXT)")
        self._sorted: sqlite3.Cursor | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def add(self, jobs: Sequence[DispatchJob]) -> None:
        """Take some more jobs."""
        rows = [(job.sequence, job.created_at_ms, original_id(job.id), job.id) for job in jobs]
        self._database.executemany("INSERT INTO jobs VALUES (?, ?, ?, ?)", rows)

    def count(self) -> int:
        """Return how many there are, a job and its copies as one."""
        (count,) = self._database.execute("SELECT count(DISTINCT original) FROM jobs").fetchone()
        return int(count)

    def next_ids(self, most: int) -> list[str]:
        """Return the next ids in order; an empty list at the end."""
        if self._sorted is None:
            self._sorted = self._database.execute(
                "SELECT max(id) AS last FROM jobs GROUP BY original ORDER BY sequence, created_at_ms, last"
            )
        return [job_id for (job_id,) in self._sorted.fetchmany(most)]

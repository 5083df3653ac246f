"""A scheduler on virtual time: the real SQL on a database in memory, and a queue that does as it is told."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from penstock.cluster.standby import Alone, Leadership
from penstock.domain.errors import Unavailable
from penstock.domain.ids import TsidFactory
from penstock.domain.job import Attempt, DispatchJob, NewJob
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode, MessagePointer, decode_pointer
from penstock.edge.clock import Clock
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.scheduler import Scheduler
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.errors import DatabaseFailed
from penstock.events.store.database import JobSignal, Transaction
from penstock.events.store.migrations import migrations
from penstock.events.store.repository import JobRepository
from penstock.events.store.repository.deliveries import Begin, Beginning, DeliveryLease, Done, EndedDelivery, Verdict
from penstock.events.store.sqlite.transaction import SqliteTransaction
from penstock.events.store.statements import Dialect
from penstock.queues.errors import BrokerUnavailable, HeldBack
from penstock.queues.port import Publication
from tests.rigs.jobs import begin_all, finish_all

Result = TypeVar("Result")

IMMEDIATE = DispatchMode.IMMEDIATE
NEXT = DispatchMode.NEXT_ON_ERROR
BLOCK = DispatchMode.BLOCK_ON_ERROR
ENDPOINT = "http://localhost:8080/api/dispatch/process"
TARGET = "https://orders.example/hook"
DEDUP_S = 300
DELIVERY_LEASE_MS = 900_000


@cache
def _tables() -> bytes:
    """A database with the tables of jobs; creating them again for each test would take much longer."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for step in migrations(Dialect.SQLITE):
        connection.executescript(step.text)
    return connection.serialize()


class InlineDatabase:
    """The tables and statements of SQLite, done on the loop: so virtual time can pass around them."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.deserialize(_tables())
        # Most of these tests deliver nothing: credit is not what they are about.
        self._connection.execute("INSERT INTO pools VALUES ('DISPATCH-POOL', 1000000, NULL)")
        self.signal = JobSignal()
        self.latency_s = 0.001
        self.is_down = False
        self.calls = 0

    async def open(self, now_ms: int) -> None:
        pass

    async def close(self) -> None:
        self._connection.close()

    def trouble(self) -> str | None:
        return None

    def require_room(self) -> None:
        pass

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        self.calls += 1
        await asyncio.sleep(self.latency_s)
        if self.is_down:
            raise DatabaseFailed("the database is down")
        transaction = SqliteTransaction(self._connection)
        self._connection.execute("BEGIN")
        try:
            result = work(transaction)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        if transaction.announced:
            self.signal.call()
        await asyncio.sleep(self.latency_s)
        return result

    write_unflushed = write_one = read = read_few = write

    async def keep_months(self, now_ms: int) -> None:
        pass

    async def drop_before(self, before_ms: int) -> None:
        pass


class Entry(msgspec.Struct, frozen=True):
    """A message that lies in the queue."""

    pointer: MessagePointer
    group: str | None
    dedup_id: str | None
    sent_ms: int = 0


class MemoryQueue:
    """A FIFO queue with deduplication, which may be slow, down, or refuse some groups.

    `entries` are all that ever came; the numbers of those that are settled, or lost, are in `gone`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, int] = {}
        self.entries: list[Entry] = []
        self.gone: set[int] = set()
        self.duplicates = 0
        self.calls: list[list[str | None]] = []
        self.latency_s = 0.001
        self.is_down = False
        self.cannot_open = 0
        self.refused_groups: set[str] = set()
        self.refusal: Callable[[], Exception] = lambda: BrokerUnavailable("no answer")
        self.closed = False

    @property
    def ids(self) -> list[str]:
        """The jobs in the queue, in order."""
        return [entry.pointer.id for entry in self.entries]

    async def open(self) -> None:
        if self.cannot_open:
            self.cannot_open -= 1
            raise Unavailable("the broker does not answer")

    async def publish(self, publications: Sequence[Publication]) -> "list[Exception | None]":
        self.calls.append([publication.group for publication in publications])
        refused: set[str | None] = set()
        results: list[Exception | None] = []
        await asyncio.sleep(self.latency_s)
        for publication in publications:
            failure = self._put(publication, refused)
            if failure is not None:
                refused.add(publication.group)
            results.append(failure)
        await asyncio.sleep(self.latency_s)
        return results

    async def settled_before_ms(self, pool: str | None = None) -> int:
        if self.is_down:
            raise BrokerUnavailable("no answer")
        return min((entry.sent_ms for entry in self.unsettled), default=self._clock.now_ms())

    @property
    def unsettled(self) -> list[Entry]:
        """What lies in the queue."""
        return [entry for number, entry in enumerate(self.entries) if number not in self.gone]

    def lose_all(self) -> None:
        """Empty the queue."""
        self.gone.update(range(len(self.entries)))

    async def close(self) -> None:
        self.closed = True

    def _put(self, publication: Publication, refused: set[str | None]) -> Exception | None:
        if publication.group in refused:
            return HeldBack(publication.group)
        if self.is_down or publication.group in self.refused_groups:
            return self.refusal()
        assert publication.dedup_id is not None
        seen_ms = self._seen.get(publication.dedup_id)
        if seen_ms is not None and self._clock.now_ms() < seen_ms + DEDUP_S * 1000:
            self.duplicates += 1
            return None
        self._seen[publication.dedup_id] = self._clock.now_ms()
        entry = Entry(decode_pointer(publication.body), publication.group, publication.dedup_id, self._clock.now_ms())
        self.entries.append(entry)
        return None


class PlainTokens:
    """Tokens that show what they are made of."""

    def token(self, job_id: str, now_ms: int) -> str:
        return f"{job_id}@{now_ms}"


class SchedulerRig:
    """A database, a queue, and as many schedulers as asked for."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.database = InlineDatabase()
        self.jobs = JobRepository(self.database)
        self.queue = MemoryQueue(clock)
        # How far the clock of those who deliver is behind that of the schedulers.
        self.router_behind_ms = 0
        self._ids = TsidFactory(1)
        self._running: list[asyncio.Task[None]] = []
        self._schedulers = 0

    def scheduler(self, leadership: Leadership | None = None, settings: SchedulerSettings | None = None) -> Scheduler:
        """A scheduler that does not run yet."""
        self._schedulers += 1
        return Scheduler(
            self.jobs,
            self.queue,
            Pointers(ENDPOINT, PlainTokens()),
            leadership or Alone(),
            settings or SchedulerSettings(jobs_per_lane=100),
            self.clock,
            name=f"s{self._schedulers}",
            seconds=asyncio.get_running_loop().time,
        )

    def start(self, leadership: Leadership | None = None, settings: SchedulerSettings | None = None) -> Scheduler:
        """A scheduler that runs."""
        scheduler = self.scheduler(leadership, settings)
        self.run(scheduler)
        return scheduler

    def run(self, scheduler: Scheduler) -> "asyncio.Task[None]":
        """Have a scheduler run."""
        task = asyncio.create_task(scheduler.run())
        self._running.append(task)
        return task

    async def stop(self) -> None:
        """Stop all schedulers gracefully, as a signal would."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    async def close(self) -> None:
        """Stop everything."""
        await self.stop()
        await self.jobs.close()

    def new_job(self, group: str | None = "g", **fields: Any) -> NewJob:
        """A job to be made."""
        now_ms = self.clock.now_ms()
        values = {"id": self._ids.next_id(now_ms), "target": TARGET, "created_at_ms": now_ms, "group": group}
        return NewJob(**{**values, **fields})

    async def make(self, group: str | None = "g", **fields: Any) -> str:
        """Keep one new job; its id."""
        return (await self.make_all([self.new_job(group, **fields)]))[0]

    async def make_all(self, jobs: Sequence[NewJob]) -> list[str]:
        """Keep new jobs; their ids."""
        return [created.id for created in await self.jobs.create_jobs(jobs, self.clock.now_ms())]

    async def status(self, job_id: str) -> JobStatus:
        """Where a job stands."""
        return (await self.jobs.get_job(job_id)).status

    async def begin(self, job_id: str) -> Begin:
        """A pointer has reached the process endpoint."""
        now_ms = self.clock.now_ms() - self.router_behind_ms
        (begin,) = await begin_all(self.jobs, [job_id], DeliveryLease(now_ms, now_ms + DELIVERY_LEASE_MS))
        return begin

    async def finish(self, job: DispatchJob, verdict: Verdict) -> bool:
        """A delivery has ended."""
        done = isinstance(verdict, Done) and verdict.status is JobStatus.COMPLETED
        outcome = AttemptOutcome.DELIVERED if done else AttemptOutcome.FAILED
        now_ms = self.clock.now_ms()
        attempt = Attempt(number=job.delivery_count, outcome=outcome, at_ms=now_ms, duration_ms=1)
        (kept,) = await finish_all(self.jobs, [EndedDelivery(job.id, attempt, verdict, now_ms)])
        return kept

    async def deliver(self, job_id: str) -> None:
        """Have a queued job delivered."""
        begun = await self.begin(job_id)
        assert begun.job is not None
        assert await self.finish(begun.job, Done(JobStatus.COMPLETED))

    async def fail(self, job_id: str) -> None:
        """Have the delivery of a queued job end in ERROR."""
        begun = await self.begin(job_id)
        assert begun.what is Beginning.BEGUN, begun
        assert begun.job is not None
        assert await self.finish(begun.job, Done(JobStatus.ERROR))


async def comes_true(holds: Callable[[], bool], within_s: float = 3600.0) -> None:
    """Let virtual time pass until a condition holds."""
    since_s = asyncio.get_running_loop().time()
    async with asyncio.timeout(within_s):
        while not holds():
            await moment(since_s)


async def moment(since_s: float) -> None:
    """Let a millisecond of virtual time pass; of a long wait a hundredth, as each look costs real time."""
    await asyncio.sleep(max(0.001, (asyncio.get_running_loop().time() - since_s) / 100))

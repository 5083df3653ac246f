"""The driver's part in dispatch: a thread with a loop that leads or stands by, and does the leader's chores.

It may also publish: it is the inline engine's scheduler while few lanes are awake. Lanes are claimed, so it may run
beside a round on Spark.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec
import uvloop

from penstock.cluster import OFF, RENEW_S, TTL_S, Alone, Standby, Terms, lease_for, running
from penstock.domain.ids import TsidFactory
from penstock.domain.pace.credit import AwakeStream
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause, pause
from penstock.events.dispatch.pending_job_poller import wait_for_work
from penstock.events.dispatch.pool_queues import DispatchQueue
from penstock.events.dispatch.recovery import StaleQueuedJobPoller
from penstock.events.dispatch.retention import Retention
from penstock.events.dispatch.scheduler import RetryingPublisher, Scheduler
from penstock.events.dispatch.settings import Counts
from penstock.events.dispatch.spark.messages import Destination, DispatchSettings
from penstock.events.store import SCHEDULER, Dialect, JobRepository
from penstock.events.store.postgres import postgres_repository
from penstock.spark.database import SparkDatabase

Result = TypeVar("Result")
_ASK_S = 30.0
_STOP_S = 15.0
log = logging.getLogger(__name__)


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the driver takes part in leadership; the same settings as the scheduler's."""

    standby: str = OFF
    ttl_s: float = TTL_S
    renew_s: float = RENEW_S


class DriverLeader:
    """Leads by the scheduler's own lease, so that only one engine publishes. It is safe to use from any thread."""

    def __init__(
        self,
        database: SparkDatabase,
        settings: DispatchSettings,
        lease: LeaseSettings,
        clock: Clock,
        ids: TsidFactory,
        destination: Destination,
        *,
        publishes: bool,
    ) -> None:
        self._database = database
        self._settings = settings
        self._lease = lease
        self._clock = clock
        self._destination = destination
        self._publishes = publishes
        self._name = ids.next_id(clock.now_ms())
        self._jobs = _signalled_repository(database)
        self._opened: Future[asyncio.Event] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="dispatch-leader", daemon=True)
        self.counts = Counts()
        self.leadership: Standby | Alone = Alone()

    def open(self) -> None:
        """Open the database and compete for the lease; raise whatever prevents it."""
        self._thread.start()
        self._opened.result(_ASK_S)

    def close(self) -> None:
        """Stop, and let the next node lead at once."""
        if self._loop is not None and self._opened.done() and self._opened.exception() is None:
            self._loop.call_soon_threadsafe(self._opened.result().set)
        self._thread.join(_STOP_S)

    def ask(self, query: Callable[[JobRepository], Coroutine[Any, Any, Result]]) -> Result:
        """Run a query on the repository and return its result."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(query(self._jobs), self._loop).result(_ASK_S)

    def leads_within(self, within_s: float) -> bool:
        """Return whether this node leads now or within a time."""
        if self.leadership.is_primary():
            return True
        assert self._loop is not None
        led = asyncio.run_coroutine_threadsafe(_is_done_within(self.leadership.becomes(True), within_s), self._loop)
        return led.result(within_s + _ASK_S)

    def take(self, jobs: "Counter[AwakeStream]") -> None:
        """Count jobs that a round publishes, so that the driver does not use their credit again meanwhile."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.counts.in_hand.update, jobs)

    def release(self, jobs: "Counter[AwakeStream]") -> None:
        """Stop counting jobs of a round that has ended; the lanes that it left may be few enough for the driver."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.counts.in_hand.subtract, jobs)
        self._loop.call_soon_threadsafe(self._jobs.signal.call)

    def stand_down(self) -> None:
        """Stop leading, because another node leads."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.leadership.stand_down)

    def _work(self) -> None:
        try:
            uvloop.run(self._lead())
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _lead(self) -> None:
        self._loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        await self._jobs.open(self._clock.now_ms())
        try:
            async with lease_for(self._lease.standby, self._jobs, self._clock, SCHEDULER, self._name) as lease:
                standby = None
                if lease is not None:
                    standby = Standby(lease, ttl_s=self._lease.ttl_s, renew_s=self._lease.renew_s)
                self.leadership = standby or Alone()
                async with running(standby), running(self._terms()):
                    self._opened.set_result(stop)
                    await stop.wait()
        finally:
            await self._jobs.close()

    def _terms(self) -> Terms | Scheduler:
        if not self._publishes:
            return Terms(self.leadership, self._new_term, self.counts, pause)
        queue = DispatchQueue(self._jobs, self._destination.queue_uri, per_pool=self._destination.queue_per_pool)
        scheduler = Scheduler(
            self._jobs,
            queue.publisher,
            self._destination.pointers(),
            self.leadership,
            self._settings.scheduler,
            self._clock,
            name=self._name,
            queues=queue.pools,
            most_awake=self._settings.few_lanes,
        )
        self.counts = scheduler.counts
        return scheduler

    def _new_term(self) -> "Housekeeping":
        jobs, clock, counts = self._jobs, self._clock, self.counts
        scheduling, token = self._settings.scheduler, self.leadership.token
        destination = self._destination
        publisher = DispatchQueue(jobs, destination.queue_uri, per_pool=destination.queue_per_pool).publisher
        queue = RetryingPublisher(publisher, counts, pause)
        return Housekeeping(
            queue,
            ChorePoller(jobs, clock, counts, self._settings.chores_every_s, pause),
            StaleQueuedJobPoller(jobs, queue, clock, scheduling, counts, pause, token=token),
            Retention(jobs, scheduling, counts, clock, pause),
        )


class Housekeeping:
    """One term of a leader whose jobs are published by Spark: chores, lost jobs and retention."""

    def __init__(
        self, queue: RetryingPublisher, chores: "ChorePoller", stale: StaleQueuedJobPoller, retention: Retention
    ) -> None:
        self._queue = queue
        self._chores = chores
        self._stale = stale
        self._retention = retention

    async def run(self) -> None:
        """Run all pollers until cancelled; StaleLeader is raised when another node leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._chores.run(), name="chore-poller")
            group.create_task(self._stale.run(), name="stale-queued-job-poller")
            group.create_task(self._retention.run(), name="retention")

    async def close(self) -> None:
        """Close the queue that was asked for lost jobs; nothing is in flight."""
        await self._queue.close()


class ChorePoller:
    """Wakes jobs that come due, expires others and ends claims: when the next is due, and at an interval."""

    def __init__(self, jobs: JobRepository, clock: Clock, counts: Counts, every_s: float, pause: Pause) -> None:
        self._jobs = jobs
        self._clock = clock
        self._counts = counts
        self._every_s = every_s
        self._pause = pause

    async def run(self) -> None:
        """Poll until cancelled; log errors and go on."""
        while True:
            try:
                await self._jobs.do_chores(self._clock.now_ms())
                await wait_for_work(self._jobs, self._clock, self._every_s)
            except Exception:
                self._counts.errors += 1
                log.exception("due jobs could not be woken")
                await self._pause(self._every_s)


def _signalled_repository(database: SparkDatabase) -> JobRepository:
    """Return a repository that is signalled when other processes create jobs, as the scheduler's is."""
    if database.dialect is Dialect.SQLITE:
        return database.repository()
    return postgres_repository(database.url, schema=database.schema, listen=True)


async def _is_done_within(coming: Awaitable[None], within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await coming
    except TimeoutError:
        return False
    return True

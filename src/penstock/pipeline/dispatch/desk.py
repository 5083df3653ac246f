"""The driver's desk: a thread with an event loop that leads or stands by, keeps house, and asks the database."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec

from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock, pause
from penstock.jobs.leading import SCHEDULER
from penstock.jobs.postgres import postgres_repository
from penstock.jobs.queries import Dialect
from penstock.jobs.repository import JobRepository
from penstock.pipeline.database import Database
from penstock.pipeline.dispatch.settings import DispatchSettings
from penstock.scheduler.claims import Claims
from penstock.scheduler.counts import Counts
from penstock.scheduler.housekeeping import Housekeeping
from penstock.scheduler.leaderships import OFF, lease_for
from penstock.scheduler.retention import Retention
from penstock.scheduler.server import running
from penstock.scheduler.standby import RENEW_S, TTL_S, Alone, Standby
from penstock.scheduler.terms import Terms

Result = TypeVar("Result")

_ASK_S = 30.0
_STOP_S = 15.0


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the driver finds out whether it leads; the word and the times are the scheduler's."""

    standby: str = OFF
    ttl_s: float = TTL_S
    renew_s: float = RENEW_S


class Desk:
    """Leads by the scheduler's own lease, so that of all engines one publishes. Used from any thread."""

    def __init__(
        self, database: Database, settings: DispatchSettings, lease: LeaseSettings, clock: Clock, ids: TsidFactory
    ) -> None:
        self._database = database
        self._settings = settings
        self._lease = lease
        self._clock = clock
        self._name = ids.next_id(clock.now_ms())
        self._jobs = _listening(database)
        self._opened: Future[asyncio.Event] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="dispatch-desk", daemon=True)
        self.counts = Counts()
        self.leadership: Standby | Alone = Alone()

    def open(self) -> None:
        """Open the database and contend for the lease; whatever keeps it from that is raised."""
        self._thread.start()
        self._opened.result(_ASK_S)

    def close(self) -> None:
        """Let the next one lead at once."""
        if self._loop is not None and self._opened.done() and self._opened.exception() is None:
            self._loop.call_soon_threadsafe(self._opened.result().set)
        self._thread.join(_STOP_S)

    def ask(self, question: Callable[[JobRepository], Coroutine[Any, Any, Result]]) -> Result:
        """What the database answers."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(question(self._jobs), self._loop).result(_ASK_S)

    def leads_within(self, within_s: float) -> bool:
        """Whether this node leads, now or in a moment."""
        if self.leadership.is_primary():
            return True
        assert self._loop is not None
        led = asyncio.run_coroutine_threadsafe(_in_time(self.leadership.becomes(True), within_s), self._loop)
        return led.result(within_s + _ASK_S)

    def stand_down(self) -> None:
        """Another node leads."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.leadership.stand_down)

    def _work(self) -> None:
        try:
            asyncio.run(self._lead())
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
                terms = Terms(self.leadership, self._new_term, self.counts, pause)
                async with running(standby), running(terms):
                    self._opened.set_result(stop)
                    await stop.wait()
        finally:
            await self._jobs.close()

    def _new_term(self) -> Housekeeping:
        scheduling = self._settings.scheduler
        claims = Claims(self._jobs, self._clock, scheduling, owner=self._name, token=self.leadership.token)
        return Housekeeping(
            claims,
            Retention(self._jobs, scheduling, self.counts, self._clock, pause),
            scheduling,
            self.counts,
            pause,
            chores_every_s=self._settings.chores_every_s,
        )


def _listening(database: Database) -> JobRepository:
    """The jobs as a scheduler opens them: called when others make some."""
    if database.dialect is Dialect.SQLITE:
        return database.repository()
    return postgres_repository(database.url, schema=database.schema, listen=True)


async def _in_time(coming: Awaitable[None], within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await coming
    except TimeoutError:
        return False
    return True

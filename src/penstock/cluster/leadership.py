"""Leadership: the lease that a setting names, and terms, one after the other, each while this node leads."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from penstock.cluster.errors import InvalidStandby, StaleLeader
from penstock.cluster.lease import FencedLease, Lease, LeaseTable, SqlLease
from penstock.cluster.standby import Leadership
from penstock.edge.clock import Clock
from penstock.edge.pause import Pause

if TYPE_CHECKING:
    from penstock.cluster.redis_lease import RedisLease

log = logging.getLogger(__name__)

OFF = "off"
SQL = "sql"
_REDIS = ("redis://", "rediss://", "unix://")

# After a term that ended in a way that was not expected.
_PAUSE_S = 1.0


@asynccontextmanager
async def lease_for(
    standby: str, table: LeaseTable, clock: Clock, name: str, holder: str
) -> AsyncIterator[Lease | None]:
    """The lease that nodes contend for; None when the word is `off`. `table` is the database that is fenced by it."""
    in_sql = SqlLease(table, clock, name, holder)
    async with AsyncExitStack() as opened:
        if standby == OFF:
            yield None
        elif standby == SQL:
            yield in_sql
        elif standby.startswith(_REDIS):
            in_redis = _redis_lease(standby, name, holder)
            opened.push_async_callback(in_redis.close)
            yield FencedLease(in_redis, in_sql)
        else:
            raise InvalidStandby("the standby is none of: off, sql, redis://host:port/0")


def _redis_lease(url: str, name: str, holder: str) -> "RedisLease":
    try:
        from penstock.cluster.redis_lease import RedisLease
    except ModuleNotFoundError as error:
        raise InvalidStandby(
            f"a lease in Redis needs its client ({error}): pip install 'penstock-events[redis]'"
        ) from error
    return RedisLease(url, name, holder)


class RunningTerm(Protocol):
    """What only the leader does, from the moment it leads until it does not."""

    async def run(self) -> None:
        """Do everything until cancelled; StaleLeader, in a group, when another leads."""

    async def close(self) -> None:
        """Let what is under way end, and give the rest back."""


class TermCounts(Protocol):
    """What is counted of terms."""

    terms: int
    errors: int


class Terms:
    """Runs a new term whenever this node leads."""

    def __init__(
        self, leadership: Leadership, new_term: Callable[[], RunningTerm], counts: TermCounts, pause: Pause
    ) -> None:
        self._leadership = leadership
        self._new_term = new_term
        self._counts = counts
        self._pause = pause

    async def run(self) -> None:
        """Lead whenever it is this node's turn, until cancelled; nothing that goes wrong ends it."""
        while True:
            await self._leadership.becomes(True)
            await self._lead()

    async def _lead(self) -> None:
        """One term: ends when the lease is lost or another leads."""
        self._counts.terms += 1
        term = self._new_term()
        work = asyncio.create_task(term.run(), name="scheduler-term")
        lost = asyncio.create_task(self._leadership.becomes(False), name="leadership-lost")
        try:
            await asyncio.wait((work, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            lost.cancel()
            await asyncio.gather(work, lost, return_exceptions=True)
            await term.close()
        if not work.cancelled():
            await self._explain(work.exception())

    async def _explain(self, error: BaseException | None) -> None:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(StaleLeader):
            log.warning("another node leads: this one stands down", extra={"token": self._leadership.token})
            self._leadership.stand_down()
            return
        self._counts.errors += 1
        log.error("the scheduler stopped in a way nobody expected; it starts again", exc_info=error)
        await self._pause(_PAUSE_S)


class RunnablePart(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None:
        """Run."""


@asynccontextmanager
async def running(part: RunnablePart | None) -> AsyncIterator[None]:
    """Have a part run, and stop it in the end."""
    if part is None:
        yield
        return
    task = asyncio.create_task(part.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

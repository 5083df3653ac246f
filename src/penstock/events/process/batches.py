"""Begins and ends of deliveries, many in one transaction.

What arrives while a transaction is under way goes together into the next one. So nothing waits when there is little to
do, and some hundred deliveries share a commit when there is much.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.events.errors import DatabaseFailed, ValuesRefused
from penstock.events.store import Begin, Beginning, DeliveryLease, EndedDelivery, JobRepository

log = logging.getLogger(__name__)

LEASE_MS = 60 * SECOND_MS
"""How long a delivery holds its job; after a crash, the job is published again when this has expired."""

MOST = 500
"""How many deliveries begin, and how many end, in one transaction."""

Result = TypeVar("Result")


class DeliveryStart(msgspec.Struct, frozen=True):
    """The answer to a delivery that wants to begin, and how often subscriptions had changed by then."""

    begin: Begin
    subscription_changes: int


Start = tuple[str, "asyncio.Future[DeliveryStart]"]
End = tuple[EndedDelivery, "asyncio.Future[bool]"]


class DeliveryBatches:
    """Begins and ends deliveries on behalf of `owner`, one transaction at a time."""

    def __init__(self, repository: JobRepository, clock: Clock, owner: str) -> None:
        self._repository = repository
        self._clock = clock
        self._owner = owner
        self._starts: list[Start] = []
        self._ends: list[End] = []
        self._flight: asyncio.Task[None] | None = None

    async def begin(self, job_id: str) -> DeliveryStart:
        """Begin a delivery, or say why not; DatabaseFailed if the database does not answer."""
        done: asyncio.Future[DeliveryStart] = asyncio.get_running_loop().create_future()
        self._starts.append((job_id, done))
        self._take_off()
        return await done

    async def finish(self, ended: EndedDelivery) -> bool:
        """End a delivery, even if the caller stops waiting; False if its job has moved on since."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ends.append((ended, done))
        self._take_off()
        return await done

    def _take_off(self) -> None:
        if self._flight is None:
            self._flight = asyncio.create_task(self._fly(), name="delivery-batches")

    async def _fly(self) -> None:
        try:
            while self._starts or self._ends:
                # A caller that is gone has no use for a delivery; an end that is known is kept in any case.
                starts = [start for start in self._starts[:MOST] if not start[1].done()]
                ends = self._ends[:MOST]
                del self._starts[:MOST], self._ends[:MOST]
                await self._exchange(starts, ends)
        finally:
            self._flight = None

    async def _exchange(self, starts: Sequence[Start], ends: Sequence[End]) -> None:
        """Do one transaction; if something in it is wrong, each part alone, so that only that part fails."""
        try:
            await self._do(starts, ends)
        except asyncio.CancelledError:
            for done in _waiting(starts, ends):
                done.cancel()
            raise
        except Exception as error:
            left = [start for start in starts if not start[1].done()]
            unkept = [end for end in ends if not end[1].done()]
            if len(left) + len(unkept) <= 1 or _is_of_the_database(error):
                for done in _waiting(left, unkept):
                    done.set_exception(error)
                return
            log.warning("deliveries could not be stored together; each is stored alone", extra={"error": str(error)})
            for end in unkept:
                await self._exchange([], [end])
            for start in left:
                await self._exchange([start], [])

    async def _do(self, starts: Sequence[Start], ends: Sequence[End]) -> None:
        now_ms = self._clock.now_ms()
        lease = DeliveryLease(self._owner, now_ms, now_ms + LEASE_MS)
        ids = list(dict.fromkeys(job_id for job_id, _ in starts))
        exchange = await self._repository.exchange([ended for ended, _ in ends], ids, lease)
        for (_, done), kept in zip(ends, exchange.ended, strict=True):
            _settle(done, kept)
        _hand_out(starts, exchange.begun, exchange.subscription_changes)
        left = [job_id for job_id in ids if job_id not in exchange.begun]
        if left:
            _hand_out(starts, await self._repository.explain(left, lease), exchange.subscription_changes)


def _is_of_the_database(error: Exception) -> bool:
    """Return whether nothing could have been stored, whatever it was."""
    return isinstance(error, DatabaseFailed) and not isinstance(error, ValuesRefused)


def _hand_out(starts: Sequence[Start], answers: Mapping[str, Begin], changes: int) -> None:
    """Answer those who wait for these jobs; of several who wait for one job, only the first delivers it."""
    begun: set[str] = set()
    for job_id, done in starts:
        begin = answers.get(job_id)
        if begin is None or done.done():
            continue
        if job_id in begun:
            begin = Begin(Beginning.BUSY, begin.job)
        elif begin.what is Beginning.BEGUN:
            begun.add(job_id)
        done.set_result(DeliveryStart(begin, changes))


def _settle(done: "asyncio.Future[Result]", result: Result) -> None:
    # Whoever waited may have been cancelled.
    if not done.done():
        done.set_result(result)


def _waiting(starts: Sequence[Start], ends: Sequence[End]) -> "list[asyncio.Future[Any]]":
    return [*(done for _, done in starts), *(done for _, done in ends)]

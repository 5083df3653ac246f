"""Begins and ends of deliveries, many in one transaction.

What arrives while a transaction is under way goes together into the next one, which under load waits some milliseconds
for more. So nothing waits when there is little to do, and some hundred deliveries share a commit when there is much.
Begins only read, and do not wait for the commits of ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from penstock.domain.job import DispatchJob
from penstock.domain.limits import SECOND_MS
from penstock.domain.order import is_ordered
from penstock.domain.pace.gather import GatherPace
from penstock.edge.clock import Clock
from penstock.edge.pause import pause
from penstock.events.errors import DatabaseFailed, ValuesRefused
from penstock.events.store import Begin, Beginning, DeliveryLease, EndedDelivery, JobRepository

log = logging.getLogger(__name__)

ARRIVAL_LEASE_MS = 60 * SECOND_MS
"""How long a job that the queue brought before it was marked counts as on its way."""

MOST = 500
"""How many deliveries begin, and how many end, in one transaction."""

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class DeliveryStart(msgspec.Struct, frozen=True):
    """The answer to a delivery that wants to begin, and how often subscriptions had changed by then."""

    begin: Begin
    subscription_changes: int


class DeliveryBatches:
    """Begins and ends deliveries, and knows which are under way in this process."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock
        self._starts: _Flights[str, DeliveryStart] = _Flights(self._start, keeps_abandoned=False)
        self._ends: _Flights[EndedDelivery, bool] = _Flights(repository.finish, keeps_abandoned=True)
        # Jobs and ordered lanes that have a delivery under way.
        self._jobs: set[str] = set()
        self._lanes: set[str] = set()

    async def begin(self, job_id: str) -> DeliveryStart:
        """Begin a delivery, or say why not; DatabaseFailed if the database does not answer.

        One that has begun is under way until `is_over`.
        """
        start = await self._starts.add(job_id)
        job = start.begin.job
        if start.begin.what is not Beginning.BEGUN or job is None:
            return start
        # Between the answer and here another may have begun.
        if job_id in self._jobs or (is_ordered(job.mode) and job.group_key in self._lanes):
            return DeliveryStart(Begin(Beginning.BUSY, job), start.subscription_changes)
        self._jobs.add(job_id)
        if is_ordered(job.mode):
            self._lanes.add(job.group_key)
        return start

    def is_over(self, job: DispatchJob) -> None:
        """Note that a delivery which has begun is over, and its end kept if it has one."""
        self._jobs.discard(job.id)
        if is_ordered(job.mode):
            self._lanes.discard(job.group_key)

    async def finish(self, ended: EndedDelivery) -> bool:
        """End a delivery, even if the caller stops waiting; False if its job has moved on since."""
        return await self._ends.add(ended)

    async def _start(self, job_ids: Sequence[str]) -> list[DeliveryStart]:
        now_ms = self._clock.now_ms()
        ids = dict.fromkeys(job_ids)
        begins = await self._repository.begin(ids, now_ms)
        answers = dict(begins.begun)
        # A job that is delivered here is not to be moved.
        left = [job_id for job_id in ids if job_id not in answers and job_id not in self._jobs]
        if left:
            answers |= await self._repository.explain(left, DeliveryLease(now_ms, now_ms + ARRIVAL_LEASE_MS))
        busy = Begin(Beginning.BUSY)
        return [DeliveryStart(answers.get(job_id, busy), begins.subscription_changes) for job_id in job_ids]


class _Flights(Generic[Asked, Answered]):
    """Does what is asked for in one call at a time, with all that came while the one before was under way."""

    def __init__(
        self, do: Callable[[Sequence[Asked]], Awaitable[Sequence[Answered]]], *, keeps_abandoned: bool
    ) -> None:
        """`keeps_abandoned`: do also what its caller does not wait for any more."""
        self._do = do
        self._keeps_abandoned = keeps_abandoned
        self._waiting: list[tuple[Asked, asyncio.Future[Answered]]] = []
        self._flight: asyncio.Task[None] | None = None
        self._pace = GatherPace()

    async def add(self, asked: Asked) -> Answered:
        done: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, done))
        if self._flight is None:
            self._flight = asyncio.create_task(self._fly(), name="delivery-batches")
        return await done

    async def _fly(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch = [each for each in self._waiting[:MOST] if self._keeps_abandoned or not each[1].done()]
                del self._waiting[:MOST]
                started_s = loop.time()
                next_s = started_s + self._pace.pause_s(len(batch), started_s)
                await self._call(batch)
                if (early_s := next_s - loop.time()) > 0 and len(self._waiting) < MOST:
                    await pause(early_s)
        finally:
            self._flight = None

    async def _call(self, batch: Sequence[tuple[Asked, "asyncio.Future[Answered]"]]) -> None:
        """Do a batch; if something in it is wrong, each alone, so that only that one fails."""
        if not batch:
            return
        try:
            answers = await self._do([asked for asked, _ in batch])
        except asyncio.CancelledError:
            for _, done in batch:
                done.cancel()
            raise
        except Exception as error:
            if len(batch) == 1 or _is_of_the_database(error):
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                return
            log.warning("deliveries could not be stored together; each is stored alone", extra={"error": str(error)})
            for each in batch:
                await self._call([each])
            return
        for (_, done), answer in zip(batch, answers, strict=True):
            # Whoever waited may have been cancelled.
            if not done.done():
                done.set_result(answer)


def _is_of_the_database(error: Exception) -> bool:
    """Return whether nothing could have been stored, whatever it was."""
    return isinstance(error, DatabaseFailed) and not isinstance(error, ValuesRefused)

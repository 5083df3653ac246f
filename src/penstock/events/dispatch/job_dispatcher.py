"""Publishes claimed jobs to the queue, and tells the database which of them are there.

Jobs that could not be published go back to PENDING after a pause.

Until then their claims keep the later jobs of their groups back (SCHED-PUBLISH-2), and they are not tried in a loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.domain.errors import FailedPrecondition, InvalidArgument
from penstock.domain.job import ClaimedJob
from penstock.edge.clock import Clock, pause
from penstock.events.dispatch.claims import Claims
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.publisher import Backoff
from penstock.events.dispatch.settings import Counts
from penstock.events.errors import NotLeading
from penstock.queues.port import Publisher

log = logging.getLogger(__name__)

# What the queue says of one message, or of one group; anything else is about the queue as a whole.
_OF_ONE_GROUP = (InvalidArgument, FailedPrecondition)


class QueuedJobs(Protocol):
    """Who is told what is in the queue: `Claims`, or the lanes of a Spark task."""

    async def queued(self, jobs: Sequence[ClaimedJob]) -> None:
        """These are in the queue."""


class FailedJobs(Protocol):
    """Who keeps what could not be published until it may be tried again."""

    @property
    def is_crowded(self) -> bool:
        """Whether more jobs failed than a few groups in trouble explain."""
        ...

    def add(self, jobs: Sequence[ClaimedJob]) -> None:
        """These could not be published."""


class OpenedPublisher(Protocol):
    """A publisher that is opened when it is wanted."""

    async def opened(self) -> Publisher:
        """The publisher, open."""
        ...


class JobDispatcher:
    """Published means QUEUED, and so does one that the queue knew already; what failed stays PENDING (SCHED-PUBLISH-2).

    A crash in between leaves a claim that ends, and then a publication which the queue's deduplication absorbs
    (SCHED-CLAIM-2).
    """

    def __init__(
        self,
        claims: QueuedJobs,
        publisher: OpenedPublisher,
        pointers: Pointers,
        put_back: FailedJobs,
        backoff: Backoff,
        counts: Counts,
        clock: Clock,
        may_publish: Callable[[], bool],
    ) -> None:
        self._claims = claims
        self._publisher = publisher
        self._pointers = pointers
        self._put_back = put_back
        self._backoff = backoff
        self._counts = counts
        self._clock = clock
        self._may_publish = may_publish

    async def dispatch(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Publish jobs in order; whether all of them are in the queue. Of a group, none goes past one that failed."""
        failures = await self._published(jobs)
        published = [job for job, failure in zip(jobs, failures, strict=True) if failure is None]
        failed = [job for job, failure in zip(jobs, failures, strict=True) if failure is not None]
        if failed:
            self._put_back.add(failed)
            self._tell_of(failed, [failure for failure in failures if failure is not None])
        else:
            self._counts.trouble = None
        if published:
            self._backoff.succeeded()
            await self._mark(published)
        elif self._put_back.is_crowded or not any(isinstance(failure, _OF_ONE_GROUP) for failure in failures):
            self._backoff.failed()
        return not failed

    async def _published(self, jobs: Sequence[ClaimedJob]) -> "Sequence[Exception | None]":
        try:
            publisher = await self._publisher.opened()
            now_ms = self._clock.now_ms()
            publications = [self._pointers.publication(job, now_ms) for job in jobs]
            # The last thing before: what came before may have taken long.
            if not self._may_publish():
                raise NotLeading
            return await publisher.publish(publications)
        except Exception as error:
            return [error] * len(jobs)

    async def _mark(self, published: Sequence[ClaimedJob]) -> None:
        self._counts.published += len(published)
        try:
            await self._claims.queued(published)
        except Exception as error:
            log.warning(
                "published jobs could not be marked; they will be published again, and deduplicated",
                extra={"jobs": len(published), "error": str(error)},
            )

    def _tell_of(self, failed: Sequence[ClaimedJob], reasons: Sequence[Exception]) -> None:
        self._counts.publish_failures += len(failed)
        self._counts.trouble = f"{len(failed)} jobs could not be published: {reasons[0]}"
        log.warning(
            "jobs could not be published; they stay pending",
            extra={"jobs": len(failed), "first_job": failed[0].id, "error": str(reasons[0]) or repr(reasons[0])},
        )


_CROWD = 1000


class PutBack:
    """Keeps failed jobs for a while, then gives them back."""

    def __init__(self, claims: Claims, pause_s: float, seconds: Callable[[], float]) -> None:
        self._claims = claims
        self._pause_s = pause_s
        self._seconds = seconds
        self._waiting: deque[tuple[float, Sequence[ClaimedJob]]] = deque()
        self._filled = asyncio.Event()
        self._jobs_held = 0

    @property
    def is_crowded(self) -> bool:
        """Whether more jobs are here than a few groups in trouble explain."""
        return self._jobs_held > _CROWD

    def add(self, jobs: Sequence[ClaimedJob]) -> None:
        """These could not be published."""
        self._waiting.append((self._seconds() + self._pause_s, jobs))
        self._jobs_held += len(jobs)
        self._filled.set()

    async def run(self) -> None:
        """Give jobs back when their pause is over, until cancelled."""
        while True:
            await self._filled.wait()
            due_s, _ = self._waiting[0]
            await pause(max(0.0, due_s - self._seconds()))
            await self._give_back_next()

    async def give_back_all(self) -> None:
        """Give everything back at once."""
        while self._waiting:
            await self._give_back_next()

    async def _give_back_next(self) -> None:
        _, jobs = self._waiting[0]
        try:
            await self._claims.give_back(jobs)
        except Exception as error:
            # Their claims end by themselves.
            log.warning("jobs could not be given back", extra={"jobs": len(jobs), "error": str(error)})
        self._waiting.popleft()
        self._jobs_held -= len(jobs)
        if not self._waiting:
            self._filled.clear()

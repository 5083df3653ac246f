"""Publishes claimed jobs to the queue, and tells the database which of them are there."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.domain.errors import FailedPrecondition, InvalidArgument
from penstock.domain.job import ClaimedJob
from penstock.edge.clock import Clock
from penstock.queues.port import Publisher
from penstock.scheduler.backoff import Backoff
from penstock.scheduler.counts import Counts
from penstock.scheduler.errors import NotLeading
from penstock.scheduler.pointers import Pointers

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
    """Published means QUEUED, and so does one that the queue knew already; what failed stays PENDING (ruling 18).

    A crash in between leaves a claim that ends, and then a publication which the queue's deduplication absorbs
    (ruling 17).
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

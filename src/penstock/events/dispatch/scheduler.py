"""The scheduler: while this node leads, jobs go from PENDING to the queue.

One term of leadership: everything that only the leader does, from the moment it leads until it does not.
"""

import asyncio
import logging
from collections.abc import Callable

from penstock.cluster import Leadership, Terms
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock, stopwatch
from penstock.edge.pause import Pause, pause
from penstock.events.dispatch.lane_publisher import LaneClaims, LanePublisher
from penstock.events.dispatch.pending_job_poller import ClaimPace, PendingJobPoller
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.publisher import PatientPublisher
from penstock.events.dispatch.recovery import StaleQueuedJobPoller
from penstock.events.dispatch.retention import Retention
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.store import JobRepository, LaneOwner
from penstock.queues import Publisher

log = logging.getLogger(__name__)

FINISH_S = 10.0
"""How long publications under way may take to end when the scheduler stops."""

_QUEUE_PAUSE_S = 0.25


class Term:
    """The pollers and the publisher of one leader."""

    def __init__(
        self,
        jobs: JobRepository,
        owner: LaneOwner,
        queue: PatientPublisher,
        pointers: Pointers,
        settings: SchedulerSettings,
        counts: Counts,
        clock: Clock,
        *,
        may_publish: Callable[[], bool],
        seconds: Callable[[], float],
        pause: Pause,
    ) -> None:
        backoff = Backoff(_QUEUE_PAUSE_S, settings.poll_interval_s)
        pace = ClaimPace(settings.batch_size, settings.max_batch_size, settings.max_concurrent_groups)
        self.publisher = LanePublisher(
            LaneClaims(jobs.lanes, owner, settings, clock),
            queue,
            pointers,
            backoff,
            counts,
            clock,
            most_lanes=lambda: pace.groups,
            may_publish=may_publish,
            # Jobs may have come while their lane was claimed.
            landed=jobs.signal.call,
            seconds=seconds,
        )
        self._poller = PendingJobPoller(
            jobs, self.publisher, queue, pace, backoff, counts, settings, clock, seconds, pause
        )
        self._stale_poller = StaleQueuedJobPoller(jobs, clock, settings, counts, pause, token=owner.token)
        self._retention = Retention(jobs, settings, counts, clock, pause)

    async def run(self) -> None:
        """Do everything until cancelled; StaleLeader when another leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poller.run(), name="pending-job-poller")
            group.create_task(self._stale_poller.run(), name="stale-queued-job-poller")
            group.create_task(self._retention.run(), name="retention")

    async def close(self) -> None:
        """Publish nothing more; let what is under way end, and give the rest back."""
        try:
            await self.publisher.finish(FINISH_S)
        except Exception as error:
            # Claims end by themselves.
            log.warning("lanes could not be given back", extra={"error": str(error)})


class Scheduler:
    """Runs a term whenever this node leads. `name` tells nodes apart in the claims."""

    def __init__(
        self,
        jobs: JobRepository,
        publisher: Publisher,
        pointers: Pointers,
        leadership: Leadership,
        settings: SchedulerSettings,
        clock: Clock,
        *,
        name: str,
        seconds: Callable[[], float] = stopwatch,
        pause: Pause = pause,
    ) -> None:
        self.counts = Counts()
        self._jobs = jobs
        self._publisher = PatientPublisher(publisher, self.counts, pause)
        self._pointers = pointers
        self._leadership = leadership
        self._settings = settings
        self._clock = clock
        self._name = name
        self._seconds = seconds
        self._pause = pause
        self._term: Term | None = None

    @property
    def jobs_held(self) -> int:
        """Jobs that are claimed here and not published yet."""
        return 0 if self._term is None else self._term.publisher.jobs_held

    @property
    def groups_held(self) -> int:
        """Groups that those jobs are of."""
        return 0 if self._term is None else self._term.publisher.lanes_held

    async def run(self) -> None:
        """Lead whenever it is this node's turn, until cancelled; nothing that goes wrong ends it."""
        try:
            await Terms(self._leadership, self._new_term, self.counts, self._pause).run()
        finally:
            await self._publisher.close()

    def _new_term(self) -> Term:
        owner = LaneOwner(f"{self._name}#{self.counts.terms}", self._leadership.token)
        self._term = Term(
            self._jobs,
            owner,
            self._publisher,
            self._pointers,
            self._settings,
            self.counts,
            self._clock,
            may_publish=self._leadership.is_primary,
            seconds=self._seconds,
            pause=self._pause,
        )
        return self._term

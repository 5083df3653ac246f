"""The scheduler: publishes PENDING jobs to the queue while this node leads."""

import asyncio
import logging
from collections.abc import Callable

from penstock.cluster import Leadership, Terms
from penstock.domain.pace.credit import CreditBook
from penstock.domain.retry import Backoff
from penstock.edge.clock import Clock, stopwatch
from penstock.edge.pause import Pause, pause
from penstock.events.dispatch.lane_claims import LaneClaims
from penstock.events.dispatch.lane_publisher import LanePublisher
from penstock.events.dispatch.pending_job_poller import ClaimPace, PendingJobPoller
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.pool_queues import PoolQueues
from penstock.events.dispatch.recovery import StaleQueuedJobPoller
from penstock.events.dispatch.retention import Retention
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.events.store import JobRepository, LaneOwner
from penstock.queues import Publisher

log = logging.getLogger(__name__)

FINISH_S = 10.0
"""How long publications in flight may take to finish when the scheduler stops."""

_QUEUE_PAUSE_S = 0.25
_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 10.0


class Scheduler:
    """Runs a term whenever this node leads. `name` identifies the node in claims.

    It leaves the lanes to others while more than `most_awake` are awake.
    """

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
        queues: PoolQueues | None = None,
        seconds: Callable[[], float] = stopwatch,
        pause: Pause = pause,
        most_awake: int | None = None,
    ) -> None:
        self.counts = Counts()
        self._queues = queues
        self._jobs = jobs
        self._publisher = RetryingPublisher(publisher, self.counts, pause)
        self._pointers = pointers
        self._leadership = leadership
        self._settings = settings
        self._clock = clock
        self._name = name
        self._seconds = seconds
        self._pause = pause
        self._most_awake = most_awake
        self._term: SchedulerTerm | None = None

    @property
    def jobs_held(self) -> int:
        """Return the number of jobs that are claimed here and not yet published."""
        return 0 if self._term is None else self._term.publisher.jobs_held

    @property
    def groups_held(self) -> int:
        """Return the number of groups of those jobs."""
        return 0 if self._term is None else self._term.publisher.lanes_held

    async def run(self) -> None:
        """Lead whenever it is this node's turn, until cancelled; errors do not end it."""
        try:
            await Terms(self._leadership, self._new_term, self.counts, self._pause).run()
        finally:
            await self._publisher.close()

    def _new_term(self) -> "SchedulerTerm":
        owner = LaneOwner(f"{self._name}#{self.counts.terms}", self._leadership.token)
        self._term = SchedulerTerm(
            self._jobs,
            owner,
            self._publisher,
            self._pointers,
            self._settings,
            self.counts,
            self._clock,
            may_publish=self._leadership.is_primary,
            queues=self._queues,
            seconds=self._seconds,
            pause=self._pause,
            most_awake=self._most_awake,
        )
        return self._term


class SchedulerTerm:
    """One term of leadership: the pollers and the publisher, from gaining the lead until losing it."""

    def __init__(
        self,
        jobs: JobRepository,
        owner: LaneOwner,
        queue: "RetryingPublisher",
        pointers: Pointers,
        settings: SchedulerSettings,
        counts: Counts,
        clock: Clock,
        *,
        may_publish: Callable[[], bool],
        queues: PoolQueues | None,
        seconds: Callable[[], float],
        pause: Pause,
        most_awake: int | None = None,
    ) -> None:
        self._queues = queues
        self._pause = pause
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
            # Jobs may have arrived while their lane was claimed.
            landed=jobs.signal.call,
            seconds=seconds,
        )
        credit = CreditBook(pointers.pool, in_hand=counts.in_hand)
        self._poller = PendingJobPoller(
            jobs, self.publisher, queue, credit, pace, backoff, counts, settings, clock, seconds, pause, most_awake
        )
        self._stale_poller = StaleQueuedJobPoller(jobs, queue, clock, settings, counts, pause, token=owner.token)
        self._retention = Retention(jobs, settings, counts, clock, pause)

    async def run(self) -> None:
        """Poll until cancelled; StaleLeader is raised when another node leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poller.run(), name="pending-job-poller")
            group.create_task(self._stale_poller.run(), name="stale-queued-job-poller")
            group.create_task(self._retention.run(), name="retention")
            if self._queues is not None:
                group.create_task(self._queues.run(self._pause), name="pool-queues")

    async def close(self) -> None:
        """Publish nothing more; let publications in flight finish, and release the remaining lanes."""
        try:
            await self.publisher.finish(FINISH_S)
        except Exception as error:
            # The claims expire.
            log.warning("lanes could not be released", extra={"error": str(error)})


class RetryingPublisher:
    """Opens the queue's publisher, retrying until it succeeds: a missing queue does not stop the scheduler."""

    def __init__(self, publisher: Publisher, counts: Counts, pause: Pause) -> None:
        self._publisher = publisher
        self._counts = counts
        self._pause = pause
        self._is_open = False
        self._opening = asyncio.Lock()

    async def opened(self) -> Publisher:
        """Return the publisher as soon as it could be opened."""
        async with self._opening:
            await self._open()
        return self._publisher

    async def _open(self) -> None:
        backoff = Backoff(_FIRST_RETRY_S, _LAST_RETRY_S)
        while not self._is_open:
            try:
                await self._publisher.open()
            except Exception as error:
                backoff.failed()
                self._counts.errors += 1
                self._counts.trouble = f"the queue cannot be opened: {error}"
                log.warning("the queue cannot be opened", extra={"error": str(error), "again_in_s": backoff.delay_s})
                await self._pause(backoff.delay_s)
            else:
                self._is_open = True
                self._counts.trouble = None

    async def close(self) -> None:
        """Close the publisher if it is open."""
        if self._is_open:
            self._is_open = False
            await self._publisher.close()

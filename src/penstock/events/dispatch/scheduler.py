"""The scheduler: while this node leads, jobs go from PENDING to the queue.

One term of leadership: everything that only the leader does, from the moment it leads until it does not.
"""

import asyncio
import logging
from collections.abc import Callable

from penstock.cluster.leadership import Terms
from penstock.cluster.standby import Leadership
from penstock.edge.clock import Clock, pause, stopwatch
from penstock.events.dispatch.claims import Claims, ScheduledJobs
from penstock.events.dispatch.job_dispatcher import JobDispatcher, PutBack
from penstock.events.dispatch.message_group_dispatcher import MessageGroupDispatcher
from penstock.events.dispatch.pending_job_poller import Pace, PendingJobPoller
from penstock.events.dispatch.pointers import Pointers
from penstock.events.dispatch.publisher import Backoff, PatientPublisher, Pause
from penstock.events.dispatch.recovery import StaleQueuedJobPoller
from penstock.events.dispatch.retention import Retention
from penstock.events.dispatch.settings import Counts, SchedulerSettings
from penstock.queues.port import Publisher

log = logging.getLogger(__name__)

FINISH_S = 10.0
"""How long publications under way may take to end when the scheduler stops."""

_QUEUE_PAUSE_S = 0.25


class Term:
    """The pollers and the dispatcher of one leader."""

    def __init__(
        self,
        claims: Claims,
        retention: Retention,
        publisher: PatientPublisher,
        pointers: Pointers,
        settings: SchedulerSettings,
        counts: Counts,
        clock: Clock,
        *,
        may_publish: Callable[[], bool],
        seconds: Callable[[], float],
        pause: Pause,
    ) -> None:
        self._claims = claims
        self._retention = retention
        self._put_back = PutBack(claims, settings.poll_interval_s, seconds)
        backoff = Backoff(_QUEUE_PAUSE_S, settings.poll_interval_s)
        job_dispatcher = JobDispatcher(claims, publisher, pointers, self._put_back, backoff, counts, clock, may_publish)
        pace = Pace(settings.batch_size, settings.max_batch_size, settings.max_concurrent_groups)
        self.dispatcher = MessageGroupDispatcher(job_dispatcher.dispatch, lambda: pace.groups, seconds)
        self._poller = PendingJobPoller(
            claims, self.dispatcher, publisher, pace, backoff, counts, settings, seconds, pause
        )
        self._stale_poller = StaleQueuedJobPoller(
            claims, counts, settings.stale_poll_s, settings.stale_batch_size, pause
        )

    async def run(self) -> None:
        """Do everything until cancelled; StaleLeader when another leads."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poller.run(), name="pending-job-poller")
            group.create_task(self._stale_poller.run(), name="stale-queued-job-poller")
            group.create_task(self._put_back.run(), name="put-back")
            group.create_task(self._retention.run(), name="retention")

    async def close(self) -> None:
        """Publish nothing more; let what is under way end, and give the rest back."""
        left = self.dispatcher.abandon()
        await self.dispatcher.finish(FINISH_S)
        if left:
            self._put_back.add(left)
        await self._put_back.give_back_all()


class Scheduler:
    """Runs a term whenever this node leads. `name` tells nodes apart in the claims."""

    def __init__(
        self,
        jobs: ScheduledJobs,
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
        return 0 if self._term is None else self._term.dispatcher.jobs_held

    @property
    def groups_held(self) -> int:
        """Groups that those jobs are of."""
        return 0 if self._term is None else self._term.dispatcher.groups

    async def run(self) -> None:
        """Lead whenever it is this node's turn, until cancelled; nothing that goes wrong ends it."""
        try:
            await Terms(self._leadership, self._new_term, self.counts, self._pause).run()
        finally:
            await self._publisher.close()

    def _new_term(self) -> Term:
        owner = f"{self._name}#{self.counts.terms}"
        claims = Claims(self._jobs, self._clock, self._settings, owner=owner, token=self._leadership.token)
        self._term = Term(
            claims,
            Retention(self._jobs, self._settings, self.counts, self._clock, self._pause),
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

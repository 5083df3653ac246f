"""One term of leadership: everything that only the leader does, from the moment it leads until it does not."""

import asyncio
import logging
from collections.abc import Callable

from penstock.edge.clock import Clock
from penstock.scheduler.backoff import Backoff
from penstock.scheduler.claims import Claims
from penstock.scheduler.counts import Counts
from penstock.scheduler.job_dispatcher import JobDispatcher
from penstock.scheduler.message_group_dispatcher import MessageGroupDispatcher
from penstock.scheduler.pace import Pace
from penstock.scheduler.patient_publisher import PatientPublisher, Pause
from penstock.scheduler.pending_job_poller import PendingJobPoller
from penstock.scheduler.pointers import Pointers
from penstock.scheduler.put_back import PutBack
from penstock.scheduler.retention import Retention
from penstock.scheduler.settings import SchedulerSettings
from penstock.scheduler.stale_queued_job_poller import StaleQueuedJobPoller

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

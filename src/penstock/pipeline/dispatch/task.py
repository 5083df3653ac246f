"""What a task of Spark's does with its share of the plan: claim lanes, publish their jobs in order, mark them QUEUED.

It runs inside one action and may run again, or twice at once: claims are in the name of the round, the queue knows a
job that it has, and a job is marked only in the round in which it was published.
"""

from collections.abc import Iterable, Iterator

import pyarrow

from penstock.edge.clock import Clock, stopwatch
from penstock.jobs.errors import StaleLeader
from penstock.pipeline.dispatch.lane_run import LaneRun, chunks, lane_runs
from penstock.pipeline.dispatch.order import Order
from penstock.pipeline.dispatch.report import Report
from penstock.pipeline.dispatch.task_lanes import TaskLanes
from penstock.pipeline.dispatch.worker_home import worker_home
from penstock.pipeline.lasting_memory import spare_collections
from penstock.queues.open import publisher_for
from penstock.queues.port import Publisher
from penstock.scheduler.backoff import Backoff
from penstock.scheduler.counts import Counts
from penstock.scheduler.job_dispatcher import JobDispatcher
from penstock.scheduler.message_group_dispatcher import MessageGroupDispatcher

_CHUNK = 2_000
# As the inline scheduler: a claim is used for the first half of its time.
_GOOD_FOR = 0.5


def publish_planned(batches: Iterable[pyarrow.RecordBatch], order: Order) -> Iterator[pyarrow.RecordBatch]:
    """Publish a task's rows of the plan; one row of REPORTS."""
    home = worker_home()

    async def publish() -> Report:
        repository = await home.repository(order.database)
        lanes = TaskLanes(repository.lanes, order.owner, order.settings.scheduler, home.clock)
        return await PublishTask(order, lanes, home.clock).run(lane_runs(batches, home.clock.now_ms()))

    yield home.run(publish()).batch()
    spare_collections("publishing")


class PublishTask:
    """The scheduler's dispatcher, fed with lanes instead of single claims."""

    def __init__(self, order: Order, lanes: TaskLanes, clock: Clock) -> None:
        self._order = order
        self._lanes = lanes
        self._clock = clock
        self._counts = Counts()
        self._backoff = Backoff(1.0, 1.0)
        self._lag_ms = 0
        self._is_stale = False

    async def run(self, runs: Iterator[LaneRun]) -> Report:
        """Publish until there is no more, the queue is in trouble, another node leads, or it is too late."""
        publisher = publisher_for(self._order.destination.queue_uri)
        try:
            await publisher.open()
        except Exception as error:
            self._backoff.failed()
            self._counts.trouble = f"the queue cannot be opened: {error}"
            return self._report()
        try:
            await self._publish(runs, publisher)
            await self._lanes.settle()
        except StaleLeader:
            self._is_stale = True
        finally:
            await publisher.close()
        return self._report()

    async def _publish(self, runs: Iterator[LaneRun], publisher: Publisher) -> None:
        settings = self._order.settings
        dispatcher = MessageGroupDispatcher(
            self._job_dispatcher(publisher).dispatch,
            lambda: settings.groups_at_once,
            stopwatch,
            # Lanes whose jobs have to rest are left where they are.
            pause_s=lambda _: 0.0,
        )
        for chunk in chunks(runs, _CHUNK):
            if not self._may_publish() or self._backoff.delay_s:
                break
            good_until_s = stopwatch() + settings.scheduler.claim_lease_s * _GOOD_FOR
            jobs = await self._lanes.take(chunk)
            self._counts.claimed += len(jobs)
            now_ms = self._clock.now_ms()
            self._lag_ms = max(self._lag_ms, max((now_ms - job.due_at_ms for job in jobs), default=0))
            dispatcher.submit(jobs, good_until_s)
            await dispatcher.has_room(_CHUNK)
        await dispatcher.has_room(1)

    def _job_dispatcher(self, publisher: Publisher) -> JobDispatcher:
        return JobDispatcher(
            self._lanes,
            _Opened(publisher),
            self._order.destination.pointers(),
            self._lanes,
            self._backoff,
            self._counts,
            self._clock,
            self._may_publish,
        )

    def _may_publish(self) -> bool:
        return self._clock.now_ms() < self._order.until_ms

    def _report(self) -> Report:
        counts = self._counts
        return Report(
            claimed=counts.claimed,
            published=counts.published,
            failed=counts.publish_failures,
            lag_ms=self._lag_ms,
            trouble=counts.trouble,
            in_trouble=self._backoff.delay_s > 0,
            is_stale=self._is_stale,
        )


class _Opened:
    """A publisher that is open already."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def opened(self) -> Publisher:
        """It."""
        return self._publisher

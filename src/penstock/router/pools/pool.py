"""A pool: delivers the messages of its groups, each group in order, with limits on concurrency and rate.

A worker is a task that has the turn of a group. It makes one attempt for the group's next message, and continues with
the next group; it ends when no group may have a turn. `_start_workers` is called whenever a group, a permit or the rate
limit becomes ready, so that no waiting message is left without a worker.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import (
    CircuitOpen,
    Deferred,
    MediationOutcome,
    MediationResult,
    RateLimited,
    retry_delay_s,
)
from penstock.domain.pace.rate import SlidingWindow
from penstock.edge.clock import Clock
from penstock.router.intake.tracker import TrackedMessage
from penstock.router.monitoring.views import RouterGroupView, RouterPoolView
from penstock.router.monitoring.warnings import WarningCode, Warnings, WarningSeverity
from penstock.router.pools.counts import PoolMetrics
from penstock.router.pools.holds import SubscriptionHolds
from penstock.router.pools.lanes import PoolLane, PoolLanes
from penstock.router.pools.mediator import Mediator, StagedMediator, attempt_of
from penstock.router.pools.permits import MessageLeaseEnded, Permit, Permits
from penstock.router.pools.returns import MessageReturns
from penstock.router.pools.shared_rate import RateLimit

CAPACITY_PER_PERMIT = 20
MIN_CAPACITY = 50
# The most messages of a poll; a queue is polled only if there is room for them.
ROOM_FOR = 10
SHRINK_WAIT_S = 60.0

_log = logging.getLogger(__name__)


class DeliveryPool:
    """Deliveries that share limits on how many run at once and how many start per minute."""

    def __init__(
        self,
        code: str,
        concurrency: int,
        rate_limit_per_minute: int | None,
        mediator: Mediator | StagedMediator,
        clock: Clock,
        warnings: Warnings,
        metrics: PoolMetrics,
        new_rate: Callable[[int], RateLimit] = SlidingWindow,
    ) -> None:
        self.code = code
        self.concurrency = concurrency
        self.metrics = metrics
        self.draining = False
        self._prepares = isinstance(mediator, StagedMediator)
        self._attempt = attempt_of(mediator)
        self._clock = clock
        self._warnings = warnings
        self._loop = asyncio.get_running_loop()
        self._new_rate = new_rate
        self._rate = new_rate(rate_limit_per_minute) if rate_limit_per_minute else None
        self._rate_timer: asyncio.TimerHandle | None = None
        self._lanes = PoolLanes(self._loop.time)
        self._returns = MessageReturns(code, self._lanes, clock, self._loop.time)
        self._workers: dict[asyncio.Task[None], _Worker] = {}
        self._backing_off: dict[PoolLane, asyncio.TimerHandle] = {}
        self._holds = SubscriptionHolds(self._lanes, self._start_workers)
        self._permits = Permits(concurrency, self._loop.time, self._start_workers, self._holds.answered)
        self._room: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()

    @property
    def capacity(self) -> int:
        """Number of messages that may wait or back off in the pool."""
        return max(self.concurrency * CAPACITY_PER_PERMIT, MIN_CAPACITY)

    @property
    def queued(self) -> int:
        """Number of messages that wait in the pool."""
        return self._lanes.queued

    @property
    def backing_off(self) -> int:
        """Number of messages that wait for the time of their next attempt."""
        return self._lanes.backing_off

    @property
    def held(self) -> int:
        """Number of messages in the pool: waiting, backing off and being delivered."""
        return self._lanes.queued + self._lanes.backing_off + len(self._workers)

    @property
    def active(self) -> int:
        """Number of deliveries that hold a permit."""
        return self._permits.taken

    @property
    def rate_limit_per_minute(self) -> int | None:
        """Number of deliveries that may start in any minute; None if unlimited."""
        return self._rate.limit if self._rate is not None else None

    def has_room(self, messages: int) -> bool:
        """Return whether the pool can accept a number of messages."""
        return not self.draining and self._lanes.queued + self._lanes.backing_off + messages <= self.capacity

    def has_room_for(self, subscription: str, messages: int) -> bool:
        """Return whether a subscription may have more messages here: half of the room at most if others use it too."""
        return self._lanes.held_of(subscription) + messages <= self.capacity // 2 or not self._lanes.is_shared

    def has_half_room(self, messages: int) -> bool:
        """Return whether the pool can accept messages of any subscriptions without looking at each."""
        return self._lanes.queued + self._lanes.backing_off + messages <= self.capacity // 2

    def submit(self, messages: Sequence[TrackedMessage]) -> None:
        """Accept messages, for which there must be room, and start workers for them."""
        assert self.has_room(len(messages))
        self.metrics.submitted(len(messages))
        for message in messages:
            self._lanes.add(message)
        self._start_workers()

    def _start_workers(self) -> None:
        while self._may_start() and (lane := self._next_lane()) is not None:
            worker = _Worker(lane, self._new_permit())
            task = self._loop.create_task(self._work(worker))
            self._workers[task] = worker
            task.add_done_callback(self._worker_ended)

    def _may_start(self) -> bool:
        """Return whether one more lane may have a turn.

        A turn that waits for a permit would use up the rate limit too early, and the half of another subscription.
        """
        if self._prepares and self._rate is None and not self._lanes.is_shared:
            return self._permits.may_prepare
        return self._permits.is_free

    def _new_permit(self) -> Permit:
        return self._permits.prepare() if self._prepares else self._permits.start()

    def _next_lane(self) -> PoolLane | None:
        """Take a permit of the rate limit and return the next lane; None if nothing can be delivered now."""
        if not self._has_turn():
            return None
        if self._rate is not None:
            now_ms = self._clock.now_ms()
            if not self._rate.take(now_ms):
                self._wake_for_rate(self._rate.ready_at_ms(now_ms) - now_ms)
                return None
        lane = self._lanes.next()
        if self._room is not None and self.has_room(ROOM_FOR):
            self._signal_room()
        return lane

    def _has_turn(self) -> bool:
        """Return whether a lane may have a turn, after dropping messages whose leases have ended."""
        now_s = self._loop.time()
        while self._lanes.has_turn(self._permits.limit):
            if self._lanes.first().leased_until_s > now_s:
                return True
            self._drop(self._lanes.next())
        return False

    def _drop(self, lane: PoolLane) -> None:
        message, lane.current = lane.current, None
        assert message is not None
        self._returns.drop(lane, message)
        self._lanes.release(lane)
        self._signal_room()

    def _wake_for_rate(self, wait_ms: int) -> None:
        if self._rate_timer is None:
            self.metrics.rate_limited()
            self._rate_timer = self._loop.call_later(wait_ms / SECOND_MS, self._rate_is_ready)

    def _rate_is_ready(self) -> None:
        self._rate_timer = None
        self._start_workers()

    async def _work(self, worker: "_Worker") -> None:
        while (lane := worker.lane) is not None:
            message = lane.current
            assert message is not None
            worker.permit.message = message
            started_s = self._loop.time()
            # Awaited here, not in a method of its own: one more coroutine would cost time on every delivery.
            try:
                outcome = await self._attempt(message.pointer, message.attempt, worker.permit)
            except MessageLeaseEnded:
                self._drop(lane)
            except Exception as error:
                self._finish_attempt(lane, message, self._unexpected_error(message, error), started_s)
            else:
                self._finish_attempt(lane, message, outcome or self._missing_outcome(message), started_s)
            worker.lane = None
            self._permits.end(worker.permit)
            if self._may_start() and (following := self._next_lane()) is not None:
                worker.lane, worker.permit = following, self._new_permit()

    def _worker_ended(self, task: "asyncio.Task[None]") -> None:
        worker = self._workers.pop(task)
        self._permits.end(worker.permit)
        if self._permits.taken < 0:
            self._warn(WarningCode.SEMAPHORE_RELEASE_FAILED, WarningSeverity.CRITICAL, "a permit was released twice")
            self._permits.taken = 0
        if worker.lane is not None:
            self._recover(worker.lane)
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a worker of pool %s ended", self.code, exc_info=error)
        self._changed.set()
        self._start_workers()

    def _recover(self, lane: PoolLane) -> None:
        """Return the messages of a worker that was cancelled during a delivery to their queue."""
        message, lane.current = lane.current, None
        if message is not None:
            self._returns.give_back(message, 0)
            self._returns.cascade(lane, message)
            self._signal_room()
        if lane.size:
            self._warn(
                WarningCode.GROUP_THREAD_EXIT_WITH_MESSAGES,
                WarningSeverity.WARN,
                f"the worker of group {lane.group!r} ended with {lane.size} messages waiting",
            )
            self._warn(WarningCode.GROUP_THREAD_RESTART, WarningSeverity.WARN, f"restarting group {lane.group!r}")
        self._lanes.release(lane)

    def _finish_attempt(
        self, lane: PoolLane, message: TrackedMessage, outcome: MediationOutcome, started_s: float
    ) -> None:
        final = outcome.is_final
        now_s = self._loop.time()
        message.delivered_s += now_s - started_s
        wait_s = None if final or self.draining else retry_delay_s(outcome, message.attempt)
        if wait_s is not None:
            self._back_off(lane, message, wait_s)
            return
        waited_s = now_s - message.tracked_s - message.delivered_s - message.backed_off_s
        self._count(outcome, message.delivered_s, waited_s, lane.group)
        if not self._prepares and (outcome.hold_s is not None or self._lanes.has_limits):
            self._holds.processed(lane.group, outcome)
        lane.current = None
        if final:
            message.origin.settlements.ack(message)
        else:
            self._returns.fail(lane, message, outcome)
            self._signal_room()
        self._lanes.release(lane)

    def _unexpected_error(self, message: TrackedMessage, error: Exception) -> MediationOutcome:
        _log.error("delivering message %s failed unexpectedly", message.pointer.id, exc_info=error)
        self._warn(WarningCode.PROCESSING, WarningSeverity.WARN, f"unexpected {type(error).__name__} while delivering")
        return MediationOutcome(MediationResult.ERROR_PROCESS)

    def _missing_outcome(self, message: TrackedMessage) -> MediationOutcome:
        self._warn(
            WarningCode.MEDIATOR_NULL_RESULT,
            WarningSeverity.CRITICAL,
            f"the mediator gave no outcome for message {message.pointer.id}",
        )
        return MediationOutcome(MediationResult.ERROR_PROCESS)

    def _back_off(self, lane: PoolLane, message: TrackedMessage, wait_s: int) -> None:
        """Wait for the next attempt without a permit; the group is blocked meanwhile."""
        message.attempt += 1
        message.backed_off_s += wait_s
        self._lanes.back_off(lane)
        self._backing_off[lane] = self._loop.call_later(wait_s, self._resume, lane)

    def _resume(self, lane: PoolLane) -> None:
        del self._backing_off[lane]
        self._lanes.resume(lane)
        self._start_workers()

    def _count(self, outcome: MediationOutcome, duration_s: float, waited_s: float, group: str) -> None:
        if outcome.result is MediationResult.SUCCESS:
            self.metrics.delivered(duration_s, waited_s, group)
        elif isinstance(outcome.error, Deferred | RateLimited):
            self.metrics.deferred(duration_s, waited_s, group)
        elif outcome.result is MediationResult.ERROR_PROCESS and not isinstance(outcome.error, CircuitOpen):
            self.metrics.transient(duration_s, waited_s, group)
        else:
            self.metrics.failed(duration_s, waited_s, group)

    def _warn(self, code: WarningCode, severity: WarningSeverity, message: str) -> None:
        self._warnings.add(code, severity, f"pool {self.code}", message)

    def room(self) -> "asyncio.Future[None]":
        """Return what ends when there may be room for the messages of a poll, or when the pool drains."""
        if self._room is None:
            self._room = self._loop.create_future()
        return self._room

    def _signal_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    async def change_concurrency(self, concurrency: int, wait_s: float = SHRINK_WAIT_S) -> bool:
        """Change the limit: a higher one immediately, a lower one when enough deliveries have ended.

        Return False, with the old limit in force, if they do not end within `wait_s`.
        """
        assert concurrency > 0
        self._permits.limit = concurrency
        self._changed.set()
        if concurrency < self.concurrency and not await self._wait_to_shrink(concurrency, wait_s):
            return False
        self.concurrency = concurrency
        self._signal_room()
        self._use_permits()
        return True

    async def _wait_to_shrink(self, concurrency: int, wait_s: float) -> bool:
        """Wait for deliveries to end; restore the old limit if they do not, or if the wait is cancelled."""
        shrunk, permits = False, self._permits
        try:
            # A newer change ends the wait and replaces this one.
            ended = await self._wait_until(lambda: self.active <= concurrency or permits.limit != concurrency, wait_s)
            shrunk = ended and permits.limit == concurrency
        finally:
            if not shrunk and permits.limit == concurrency:
                _log.warning("pool %s has %d deliveries; its limit stays %d", self.code, self.active, self.concurrency)
                permits.limit = self.concurrency
                self._use_permits()
        return shrunk

    def _use_permits(self) -> None:
        self._permits.hand_out()
        self._lanes.queue_all()
        self._start_workers()

    def change_rate_limit(self, rate_limit_per_minute: int | None) -> None:
        """Change or remove the rate limit; it applies to waiting messages immediately."""
        if rate_limit_per_minute is None:
            self._rate = None
        elif self._rate is None:
            self._rate = self._new_rate(rate_limit_per_minute)
        else:
            self._rate.change_limit(rate_limit_per_minute)
        if self._rate_timer is not None:
            self._rate_timer.cancel()
            self._rate_timer = None
        self._start_workers()

    def share(self, *, shared: bool) -> None:
        """Say whether several subscriptions have this pool; what is delivered at present goes on."""
        self._lanes.configured_shared = shared
        self._use_permits()

    def drain(self) -> None:
        """Accept no more messages, return waiting ones to their queue in order, let deliveries end (ROUTER-STOP-4)."""
        self.draining = True
        _log.log(
            logging.INFO if self.held else logging.DEBUG,
            "pool %s is drained: %d messages wait, %d are being delivered, in %d groups",
            self.code,
            self.queued + self.backing_off,
            self.active,
            len(self._lanes),
            extra={"pool": self.code},
        )
        if self._rate_timer is not None:
            self._rate_timer.cancel()
            self._rate_timer = None
        for timer in self._backing_off.values():
            timer.cancel()
        self._backing_off.clear()
        self._holds.clear()
        for message in self._lanes.clear():
            self._returns.give_back(message, 0)
        self._signal_room()
        self._changed.set()

    def reopen(self, concurrency: int, rate_limit_per_minute: int | None) -> None:
        """Accept messages again, with new limits: the pool was configured again before it was removed."""
        self.draining = False
        self.concurrency = self._permits.limit = concurrency
        self.change_rate_limit(rate_limit_per_minute)

    @property
    def is_removable(self) -> bool:
        """Whether it is drained, and its rate limit has no history that a new pool would have to respect."""
        return self.draining and self.held == 0 and (self._rate is None or self._rate.is_unused(self._clock.now_ms()))

    async def wait_until_drained(self, wait_s: float) -> bool:
        """Wait for the last delivery to end; return False if that takes longer than `wait_s`."""
        return await self._wait_until(lambda: not self._workers, wait_s)

    def stop(self) -> None:
        """Cancel the remaining deliveries; their messages return to their queue."""
        for task in self._workers:
            task.cancel()

    async def _wait_until(self, condition: Callable[[], bool], wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return condition()
        return True

    def view(self) -> RouterPoolView:
        """Return the current state of the pool."""
        now_s = self._loop.time()
        oldest_s = self._lanes.oldest_tracked_s()
        counts = self.metrics
        return RouterPoolView(
            code=self.code,
            concurrency=self.concurrency,
            rate_limit_per_minute=self.rate_limit_per_minute,
            queue_capacity=self.capacity,
            queued=self.queued,
            active=self.active,
            backing_off=self.backing_off,
            available_permits=max(0, self._permits.limit - self.active),
            groups=len(self._lanes),
            rate_limited=self._rate_timer is not None,
            draining=self.draining,
            oldest_waiting_s=0.0 if oldest_s is None else now_s - oldest_s,
            succeeded=counts.succeeded_count,
            failed=counts.failed_count,
            transient=counts.transient_count,
            deferred=counts.deferred_count,
            rate_limit_waits=counts.rate_limit_waits,
            submitted=counts.submitted_count,
            success_rate=counts.success_rate,
            judged=counts.judged_count,
            average_processing_ms=counts.average_processing_ms,
        )

    def groups(self) -> list[RouterGroupView]:
        """Return the groups that have messages in the pool."""
        now_s = self._loop.time()
        return [
            RouterGroupView(
                pool=self.code,
                group=lane.group,
                queued=lane.size,
                active=lane.current is not None,
                oldest_waiting_s=max((now_s - message.tracked_s for message in lane.held()), default=0.0),
            )
            for lane in self._lanes
        ]


class _Worker:
    """A worker's lane and permit; no lane while it looks for the next one."""

    __slots__ = ("lane", "permit")

    def __init__(self, lane: PoolLane, permit: Permit) -> None:
        self.lane: PoolLane | None = lane
        self.permit = permit

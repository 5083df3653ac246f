"""A consumer: polls one queue, and keeps the leases of what it has taken.

The lease heartbeat: while a message waits or is being delivered, its lease is extended (ROUTER-TRACK-3).

Messages stand in rounds. A round comes every sixth of the visibility timeout; a message is extended two rounds after
the one it came in, so after a third of the timeout at most, and stands in a later round then. Adding, removing and a
beat cost nothing per message that is not due.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable

from penstock.domain.errors import PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.edge.pause import pause
from penstock.queues import Received, Source
from penstock.router.intake.settlement import Settlements
from penstock.router.intake.tracker import InFlightTracker, Round, Stage, TrackedMessage
from penstock.router.monitoring.views import QueueView
from penstock.router.pools.pool import ROOM_FOR, DeliveryPool

ROUNDS_PER_VISIBILITY = 6
_ROUNDS_BETWEEN = 2


class HeartbeatRounds:
    """Which leases are extended when."""

    def __init__(self) -> None:
        # Dictionaries and not sets, so that leases are extended in the order they began.
        self._rounds: deque[Round] = deque({} for _ in range(_ROUNDS_BETWEEN))

    def __bool__(self) -> bool:
        """Whether any lease is kept."""
        return any(self._rounds)

    def add(self, message: TrackedMessage) -> None:
        """The message's lease has just begun, or has just been extended."""
        if message.beat is not None:
            del message.beat[message]
        message.beat = self._rounds[-1]
        message.beat[message] = None

    def remove(self, message: TrackedMessage) -> None:
        """The message needs its lease no longer."""
        if message.beat is not None:
            del message.beat[message]
            message.beat = None

    def due(self) -> list[TrackedMessage]:
        """A round has come: the messages to extend now; they are due again in later rounds."""
        messages = list(self._rounds.popleft())
        self._rounds.append({})
        for message in messages:
            message.beat = None
            self.add(message)
        return messages


# A pool that a queue has fed within this time stops the queue's polls while it is full (ROUTER-ROUTE-7).
FED_S = 60.0
_BACK_OFF_S = (0.2, 1.0, 5.0, 15.0)

_log = logging.getLogger(__name__)

Route = Callable[["Consumer", list[Received]], Iterable[DeliveryPool]]


class Consumer:
    """Polls until it is stopped; settles what is under way, and keeps its leases, until it is closed."""

    def __init__(
        self,
        source: Source,
        connections: int,
        route: Route,
        tracker: InFlightTracker,
        clock: Clock,
        health_timeout_s: float,
    ) -> None:
        self.source = source
        self.name = source.name
        self.settlements = Settlements(source, tracker)
        self.stopped = False
        self.polls = 0
        self.received = 0
        self.malformed = 0
        self._connections = connections
        self._route = route
        self._tracker = tracker
        self._clock = clock
        self._health_timeout_ms = health_timeout_s * SECOND_MS
        self._loop = asyncio.get_running_loop()
        self._polls: set[asyncio.Task[None]] = set()
        self._heart: asyncio.Task[None] | None = None
        self._beats = HeartbeatRounds()
        self._last_poll_ms: int | None = None
        self._paused_polls = 0
        self._fed: dict[DeliveryPool, float] = {}

    def start(self) -> None:
        """Begin to poll."""
        self._spawn(self._consume())

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._polls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._polls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is unhealthy now: the monitor puts another one in its place.
            _log.error("a task of queue %s ended", self.name, exc_info=error)
            self.stop()

    async def _consume(self) -> None:
        """Open the queue, however long that takes, and poll it."""
        failures = 0
        while True:
            try:
                await self.source.open()
                break
            except PenstockError as error:
                await self._wait_after(failures, error)
                failures += 1
        if self.source.visibility_s is not None:
            self._heart = self._loop.create_task(self._keep_leases(self.source.visibility_s))
            self._heart.add_done_callback(self._ended)
        # Counted as a poll, so that one which never comes back from its first poll is replaced too.
        self._last_poll_ms = self._clock.now_ms()
        for _ in range(self._connections):
            self._spawn(self._poll())

    async def _wait_after(self, failures: int, error: PenstockError) -> None:
        wait_s = _BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)]
        _log.warning("queue %s: %s; trying again in %g s", self.name, error, wait_s)
        await pause(wait_s)

    async def _poll(self) -> None:
        failures = 0
        while True:
            await self._room()
            try:
                batch = await self.source.receive()
            except PenstockError as error:
                await self._wait_after(failures, error)
                failures += 1
                continue
            failures = 0
            self.polls += 1
            self._last_poll_ms = self._clock.now_ms()
            if batch:
                self.received += len(batch)
                now_s = self._loop.time()
                for pool in self._route(self, batch):
                    self._fed[pool] = now_s

    async def _room(self) -> None:
        """Wait while a pool of this queue is full: polling would only send messages round."""
        while full := self._full_pool():
            self._paused_polls += 1
            try:
                await full.room()
            finally:
                self._paused_polls -= 1
                self._last_poll_ms = self._clock.now_ms()

    def _full_pool(self) -> DeliveryPool | None:
        since_s = self._loop.time() - FED_S
        for pool, fed_s in list(self._fed.items()):
            if pool.draining:
                del self._fed[pool]
            elif not pool.has_room(ROOM_FOR):
                return pool
            elif fed_s < since_s:
                del self._fed[pool]
        return None

    async def _keep_leases(self, visibility_s: float) -> None:
        while True:
            await pause(visibility_s / ROUNDS_PER_VISIBILITY)
            due = [message.received for message in self._beats.due()]
            if not due:
                continue
            try:
                await self.source.extend(due)
            except PenstockError as error:
                _log.warning("queue %s: cannot extend %d leases: %s", self.name, len(due), error)

    def took(self, message: TrackedMessage) -> None:
        """A message is on its way: keep its lease."""
        self._beats.add(message)

    def took_again(self, message: TrackedMessage, received: Received) -> None:
        """A message on its way was handed out once more: settle it with the newest handle, through this consumer."""
        message.origin.forget(message)
        message.origin = self
        message.received.handle = received.handle
        message.reissued = message.stage is Stage.SETTLING
        self._beats.add(message)

    def forget(self, message: TrackedMessage) -> None:
        """The message's lease is needed no longer, or is another consumer's matter."""
        self._beats.remove(message)

    @property
    def is_healthy(self) -> bool:
        """Whether it polls: it did so lately, has just begun, or waits for a full pool."""
        if self.stopped or not self._polls:
            return False
        if self._paused_polls or self._last_poll_ms is None:
            return True
        return self._clock.now_ms() - self._last_poll_ms < self._health_timeout_ms

    def stop(self) -> None:
        """Poll no more."""
        self.stopped = True
        for poll in list(self._polls):
            poll.cancel()

    async def stopped_polling(self) -> None:
        """Wait until no poll is under way."""
        if self._polls:
            await asyncio.wait(self._polls)

    @property
    def is_idle(self) -> bool:
        """Whether it was stopped and nothing of it is under way: it may be closed."""
        return self.stopped and not self._polls and not self.settlements.under_way and not self._beats

    async def close(self) -> None:
        """Poll no more and hang up; the source finishes the settlements that are under way."""
        self.stop()
        await self.stopped_polling()
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait([self._heart])
        await self.source.close()

    def view(self) -> QueueView:
        """The queue at this moment."""
        polled_ms = self._last_poll_ms
        return QueueView(
            name=self.name,
            uri=self.source.address,
            connections=self._connections,
            polls=self.polls,
            received=self.received,
            acked=self.settlements.acked,
            nacked=self.settlements.nacked,
            malformed=self.malformed,
            in_flight=self._tracker.in_queue(self.name),
            paused=self._paused_polls > 0,
            healthy=self.is_healthy,
            last_poll_age_s=None if polled_ms is None else (self._clock.now_ms() - polled_ms) / SECOND_MS,
            draining=self.stopped,
        )

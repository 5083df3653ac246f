"""A consumer: polls one queue, and extends the leases of its messages until they are settled."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from math import inf

from penstock.domain.errors import PenstockError
from penstock.domain.limits import SECOND_MS
from penstock.edge.pause import pause
from penstock.queues import Received, Source
from penstock.router.intake.reach import QueueReach
from penstock.router.intake.settlement import Settlements
from penstock.router.intake.tracker import InFlightTracker, Round, Stage, TrackedMessage
from penstock.router.monitoring.views import QueueView
from penstock.router.pools.pool import ROOM_FOR, DeliveryPool

# Polls pause while every pool that the queue has fed within this time is full (ROUTER-ROUTE-7).
FED_S = 600.0
# A pause ends after this time, as messages for other pools may have come.
PROBE_S = 60.0
# The pause after a poll, for each of its messages that was turned away: at most 200 of them per second.
TURNED_AWAY_PAUSE_S = 0.005
ROUNDS_PER_VISIBILITY = 6
_ROUNDS_BETWEEN = 2
_BACK_OFF_S = (0.2, 1.0, 5.0, 15.0)

_log = logging.getLogger(__name__)

Route = Callable[["Consumer", list[Received]], Iterable[DeliveryPool]]


class Consumer:
    """Polls a queue until stopped; settles its messages, and extends their leases, until closed."""

    def __init__(
        self,
        source: Source,
        connections: int,
        route: Route,
        tracker: InFlightTracker,
        reach: QueueReach,
        health_timeout_s: float,
    ) -> None:
        self.source = source
        self.name = source.name
        self.settlements = Settlements(source, tracker)
        self.stopped = False
        self.polls = 0
        self.received = 0
        self.malformed = 0
        # Number of messages for which their pool had no room.
        self.turned_away = 0
        self._connections = connections
        self._route = route
        self._tracker = tracker
        self._reach = reach
        self._health_timeout_ms = health_timeout_s * SECOND_MS
        self._loop = asyncio.get_running_loop()
        self._polls: set[asyncio.Task[None]] = set()
        self._lease_keeper: asyncio.Task[None] | None = None
        self._heartbeat = HeartbeatRounds()
        self._has_leases = asyncio.Event()
        self._paused_polls = 0
        self._fed = FedPools(self._loop.time)

    def start(self) -> None:
        """Start polling."""
        self._spawn(self._consume())

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._polls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._polls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is unhealthy now, so the monitor replaces it.
            _log.error("a task of queue %s ended", self.name, exc_info=error)
            self.stop()

    async def _consume(self) -> None:
        """Open the queue, retrying without limit, and poll it."""
        failures = 0
        while True:
            try:
                await self.source.open()
                break
            except PenstockError as error:
                await self._wait_after(failures, error)
                failures += 1
        self._reach.answered()
        if self.source.visibility_s is not None:
            self._lease_keeper = self._loop.create_task(self._keep_leases(self.source.visibility_s))
            self._lease_keeper.add_done_callback(self._ended)
        for _ in range(self._connections):
            self._spawn(self._poll())

    async def _wait_after(self, failures: int, error: PenstockError) -> None:
        self._reach.failed(error)
        wait_s = _BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)]
        _log.warning("queue %s: %s; retrying in %g s", self.name, error, wait_s)
        await pause(wait_s)

    async def _poll(self) -> None:
        failures = 0
        while True:
            await self._wait_for_room()
            try:
                batch = await self.source.receive()
            except PenstockError as error:
                await self._wait_after(failures, error)
                failures += 1
                continue
            failures = 0
            self.polls += 1
            self._reach.answered()
            if batch:
                self.received += len(batch)
                turned_away = self.turned_away
                self._fed.add(self._route(self, batch))
                if turned_away := self.turned_away - turned_away:
                    await pause(turned_away * TURNED_AWAY_PAUSE_S)

    async def _wait_for_room(self) -> None:
        """Wait while all pools of this queue are full, as they would turn the messages away."""
        if self._fed.has_room():
            return
        self._paused_polls += 1
        try:
            await self._fed.wait_for_room()
        finally:
            self._paused_polls -= 1
            self._reach.answered()

    async def _keep_leases(self, visibility_s: float) -> None:
        while True:
            if not self._heartbeat:
                # Thousands of idle queues need no timers.
                self._has_leases.clear()
                await self._has_leases.wait()
            await pause(visibility_s / ROUNDS_PER_VISIBILITY)
            now_s = self._loop.time()
            # One whose lease has ended may be another router's by now.
            due = [message for message in self._heartbeat.due() if message.leased_until_s > now_s]
            if not due:
                continue
            handles = [message.received.handle for message in due]
            try:
                await self.source.extend([message.received for message in due])
            except PenstockError as error:
                _log.warning("queue %s: cannot extend %d leases: %s", self.name, len(due), error)
                continue
            confirmed_s = self._loop.time()
            for message, handle in zip(due, handles, strict=True):
                # Confirmed after the end of the lease, the request may have come too late.
                if message.received.handle == handle and confirmed_s < message.leased_until_s:
                    message.leased_until_s = now_s + visibility_s

    def keep_lease(self, message: TrackedMessage) -> None:
        """Extend the lease of a message, which has just been received, until it is released."""
        visibility_s = self.source.visibility_s
        message.leased_until_s = inf if visibility_s is None else message.received.leased_s + visibility_s
        self._heartbeat.add(message)
        self._has_leases.set()

    def redelivered(self, message: TrackedMessage, received: Received) -> None:
        """Settle a message in flight with the newest handle, through this consumer, after a redelivery."""
        message.origin.release_lease(message)
        message.origin = self
        message.received.handle = received.handle
        message.received.leased_s = received.leased_s
        message.reissued = message.stage is Stage.SETTLING
        self.keep_lease(message)

    def release_lease(self, message: TrackedMessage) -> None:
        """Stop extending the lease of a message."""
        self._heartbeat.remove(message)

    @property
    def is_healthy(self) -> bool:
        """Whether it polls: its queue has answered recently or is new, or it waits for a full pool."""
        if self.stopped or not self._polls:
            return False
        return self._paused_polls > 0 or self._reach.silent_ms < self._health_timeout_ms

    def stop(self) -> None:
        """Stop polling."""
        self.stopped = True
        for poll in list(self._polls):
            poll.cancel()

    async def wait_until_stopped(self) -> None:
        """Wait until no poll is running."""
        if self._polls:
            await asyncio.wait(self._polls)

    @property
    def is_idle(self) -> bool:
        """Whether it was stopped and has nothing left to settle, so that it may be closed."""
        return self.stopped and not self._polls and not self.settlements.under_way and not self._heartbeat

    async def close(self) -> None:
        """Stop polling and close the source, which finishes pending settlements."""
        self.stop()
        await self.wait_until_stopped()
        if self._lease_keeper is not None:
            self._lease_keeper.cancel()
            await asyncio.wait([self._lease_keeper])
        await self.source.close()

    def view(self) -> QueueView:
        """Return the current state of the queue."""
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
            last_poll_age_s=None if self._reach.answered_ms is None else self._reach.silent_ms / SECOND_MS,
            draining=self.stopped,
            missing=self._reach.is_missing,
        )


class FedPools:
    """The pools that a queue has fed lately."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._fed_s: dict[DeliveryPool, float] = {}
        # The pool that was last found to have room: looking there first saves the search.
        self._roomy: DeliveryPool | None = None

    def add(self, pools: Iterable[DeliveryPool]) -> None:
        """Add the pools of a batch."""
        now_s = self._now_s()
        for pool in pools:
            self._fed_s[pool] = now_s

    def has_room(self) -> bool:
        """Return whether any of the pools has room for the messages of a poll, or there are none."""
        since_s = self._now_s() - FED_S
        roomy = self._roomy
        if roomy is not None and self._fed_s.get(roomy, -inf) >= since_s and roomy.has_room(ROOM_FOR):
            return True
        for pool, fed_s in list(self._fed_s.items()):
            if pool.draining or fed_s < since_s:
                del self._fed_s[pool]
            elif pool.has_room(ROOM_FOR):
                self._roomy = pool
                return True
        return not self._fed_s

    async def wait_for_room(self) -> None:
        """Wait until any of the pools has room, or until it is time to look for messages for others."""
        rooms = [pool.room() for pool in self._fed_s]
        await asyncio.wait(rooms, timeout=PROBE_S, return_when=asyncio.FIRST_COMPLETED)


class HeartbeatRounds:
    """The schedule of lease extensions: while a message is in flight, its lease is extended (ROUTER-TRACK-3).

    A round comes every sixth of the visibility timeout; a message is extended two rounds after it was added, so after a
    third of the timeout at most. Messages that are not due cost nothing.
    """

    def __init__(self) -> None:
        # Dictionaries, as sets do not keep the order in which the leases started.
        self._rounds: deque[Round] = deque({} for _ in range(_ROUNDS_BETWEEN))

    def __bool__(self) -> bool:
        """Return whether there is any message."""
        return any(self._rounds)

    def add(self, message: TrackedMessage) -> None:
        """Add a message whose lease has just started or been extended."""
        if message.lease_round is not None:
            del message.lease_round[message]
        message.lease_round = self._rounds[-1]
        message.lease_round[message] = None

    def remove(self, message: TrackedMessage) -> None:
        """Remove a message, if it is there."""
        if message.lease_round is not None:
            del message.lease_round[message]
            message.lease_round = None

    def due(self) -> list[TrackedMessage]:
        """Start the next round, and return the messages to extend now."""
        messages = list(self._rounds.popleft())
        self._rounds.append({})
        for message in messages:
            message.lease_round = None
            self.add(message)
        return messages

"""Group order for brokers that do not keep it themselves.

A source adds every message as it arrives. A message that is unsettled or delayed blocks the later ones of its group,
and nothing of other groups. Every operation is O(1), `take` is O(1) per message.
"""

import asyncio
from collections import deque
from enum import Enum
from itertools import count
from math import inf
from typing import Generic, TypeVar

import msgspec

from penstock.domain.errors import PenstockError
from penstock.queues.port import Received

POLL_S = 20.0
# As many as the other sources return at once, so that a small pool has room for a whole batch.
MAX_PER_RECEIVE = 10


M = TypeVar("M")


class State(Enum):
    """The state of a message."""

    WAITING = "may be taken once no earlier message of its group is unsettled"
    HELD = "nacked, waits for its delay to end"
    OUT = "taken, not settled"
    GONE = "settled"


class _Entry(Generic[M]):
    """A message in its lane."""

    __slots__ = ("key", "lane", "message", "state")

    def __init__(self, key: str, lane: "_Lane[M]", message: M) -> None:
        self.key = key
        self.lane = lane
        self.message = message
        self.state = State.WAITING


class _Lane(Generic[M]):
    """The messages of a group in order, including settled ones behind the first unsettled one."""

    __slots__ = ("entries", "group", "is_queued")

    def __init__(self, group: str | None) -> None:
        self.group = group
        self.entries: deque[_Entry[M]] = deque()
        self.is_queued = False

    def front(self) -> _Entry[M] | None:
        """Return the first unsettled message."""
        while self.entries and self.entries[0].state is State.GONE:
            self.entries.popleft()
        return self.entries[0] if self.entries else None

    def run(self, most: int) -> list[_Entry[M]]:
        """Return the waiting messages before the first that is taken or delayed."""
        run: list[_Entry[M]] = []
        for entry in self.entries:
            if entry.state is State.GONE:
                continue
            if entry.state is not State.WAITING or len(run) == most:
                break
            run.append(entry)
        return run


class GroupOrder(Generic[M]):
    """The unsettled messages of a source, by a key that stays the same when a message is redelivered."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[M]] = {}
        self._lanes: dict[str, _Lane[M]] = {}
        self._ready: deque[_Lane[M]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def ready_lanes(self) -> int:
        """Number of groups that have a message to take; each message without a group counts as one."""
        return len(self._ready)

    def messages(self, *states: State) -> list[M]:
        """Return the messages in any of the states, in no order."""
        return [entry.message for entry in self._entries.values() if entry.state in states]

    def find(self, key: str) -> M | None:
        """Return the newest delivery of an unsettled message."""
        entry = self._entries.get(key)
        return entry.message if entry else None

    def arrive(self, key: str, group: str | None, message: M) -> None:
        """Add a message at the end of its group; a redelivered one keeps its place and waits again."""
        entry = self._entries.get(key)
        if entry is None:
            lane = self._lane(group)
            entry = self._entries[key] = _Entry(key, lane, message)
            lane.entries.append(entry)
        entry.message = message
        if entry.state is State.OUT:
            entry.state = State.WAITING
        self._queue(entry.lane)

    def take(self, most: int) -> list[M]:
        """Take messages, groups in turn, from each its first waiting ones."""
        taken: list[M] = []
        while self._ready and len(taken) < most:
            lane = self._ready.popleft()
            lane.is_queued = False
            for entry in lane.run(most - len(taken)):
                entry.state = State.OUT
                taken.append(entry.message)
        return taken

    def settle(self, key: str) -> M | None:
        """Remove a message for good and return it; None if it is unknown."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        entry.state = State.GONE
        if entry.lane.front() is not None:
            self._queue(entry.lane)
        elif entry.lane.group is not None:
            self._lanes.pop(entry.lane.group, None)
        return entry.message

    def give_back(self, key: str) -> None:
        """Let a message wait again: it was not settled, or its delay has ended."""
        if entry := self._entries.get(key):
            entry.state = State.WAITING
            self._queue(entry.lane)

    def hold_back(self, key: str) -> None:
        """Block a message and all later ones of its group until it is given back."""
        if entry := self._entries.get(key):
            entry.state = State.HELD

    def clear(self) -> None:
        """Remove all messages."""
        self._entries.clear()
        self._lanes.clear()
        self._ready.clear()

    def _lane(self, group: str | None) -> _Lane[M]:
        if group is None:
            return _Lane(None)
        lane = self._lanes.get(group)
        if lane is None:
            lane = self._lanes[group] = _Lane(group)
        return lane

    def _queue(self, lane: _Lane[M]) -> None:
        front = lane.front()
        if front is not None and front.state is State.WAITING and not lane.is_queued:
            lane.is_queued = True
            self._ready.append(lane)


class Arrival(msgspec.Struct, eq=False):
    """The newest delivery of a message."""

    broker_id: str
    body: bytes
    group: str | None
    # Identifies this delivery in an acknowledgement.
    token: str
    # Handle of the last receive of this delivery; empty if there was none.
    handle: str = ""
    # As in Received.
    leased_s: float = inf


class ArrivalBuffer:
    """Buffers deliveries between a broker and `receive`, in group order."""

    def __init__(self) -> None:
        self.order: GroupOrder[Arrival] = GroupOrder()
        self._handles = count(1)
        self._delays: dict[str, asyncio.TimerHandle] = {}
        self._changed = asyncio.Event()
        self._failure: PenstockError | None = None
        # Whether the last receive failed: the next one says at once that the broker is back (ROUTER-HEALTH-6).
        self._has_failed = False

    @property
    def failure(self) -> PenstockError | None:
        """The error that `receive` raises now."""
        return self._failure

    def arrive(self, arrival: Arrival) -> None:
        """Add a delivery of the broker."""
        self.order.arrive(arrival.broker_id, arrival.group, arrival)
        self._changed.set()

    async def receive(self) -> list[Received]:
        """Return the next messages; wait for some until the poll ends."""
        ends_s = asyncio.get_running_loop().time() + POLL_S
        while True:
            if self._failure is not None:
                self._has_failed = True
                raise self._failure
            if (taken := self.order.take(MAX_PER_RECEIVE)) or self._has_failed:
                self._has_failed = False
                return [self._received(arrival) for arrival in taken]
            self._changed.clear()
            try:
                async with asyncio.timeout_at(ends_s):
                    await self._changed.wait()
            except TimeoutError:
                return []

    def current(self, message: Received) -> Arrival | None:
        """Return the delivery of a received message whose handle has not expired."""
        arrival = self.order.find(message.broker_id)
        return arrival if arrival is not None and arrival.handle == message.handle else None

    def settle(self, broker_id: str) -> None:
        """Remove a message for good; the next of its group may be received."""
        self._end_delay(broker_id)
        if self.order.settle(broker_id) is not None:
            self._changed.set()

    def give_back(self, broker_id: str, delay_s: float = 0) -> None:
        """Return a message to be received again after the delay, before the later ones of its group."""
        arrival = self.order.find(broker_id)
        if arrival is None:
            return
        arrival.handle = ""
        self._end_delay(broker_id)
        if delay_s > 0:
            self.order.hold_back(broker_id)
            loop = asyncio.get_running_loop()
            self._delays[broker_id] = loop.call_later(delay_s, self.give_back, broker_id)
        else:
            self.order.give_back(broker_id)
            self._changed.set()

    def clear(self) -> None:
        """Remove all messages, as the broker will redeliver them."""
        self.order.clear()
        for timer in self._delays.values():
            timer.cancel()
        self._delays.clear()

    def fail(self, reason: PenstockError) -> None:
        """Make `receive` fail until `recover`."""
        self._failure = reason
        self._changed.set()

    def recover(self) -> None:
        """Make `receive` wait for messages again."""
        self._failure = None

    def _received(self, arrival: Arrival) -> Received:
        arrival.handle = f"{arrival.broker_id}/{next(self._handles)}"
        ordered = arrival.group is not None
        return Received(arrival.broker_id, arrival.body, arrival.group, arrival.handle, ordered, arrival.leased_s)

    def _end_delay(self, broker_id: str) -> None:
        if timer := self._delays.pop(broker_id, None):
            timer.cancel()

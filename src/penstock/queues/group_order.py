"""The order of groups for brokers that do not keep it themselves.

A source puts every message in as it arrives. Of a group, only the run of waiting messages at its front is handed out:
a message that is out or held back keeps every later one of its group waiting, and nothing of other groups. Every
operation is O(1), `take` O(1) per message.

Where messages stand from their arrival until they are settled, for brokers whose group order is kept here.
"""

import asyncio
from collections import deque
from enum import Enum
from itertools import count
from typing import Generic, TypeVar

import msgspec

from penstock.domain.errors import PenstockError
from penstock.queues.port import Received

M = TypeVar("M")


class State(Enum):
    """Where a message stands."""

    WAITING = "may be handed out once it is in front"
    HELD = "given back, waits out its delay"
    OUT = "handed out, not settled"
    GONE = "settled"


class _Place(Generic[M]):
    """A message in its lane."""

    __slots__ = ("key", "lane", "message", "state")

    def __init__(self, key: str, lane: "_Lane[M]", message: M) -> None:
        self.key = key
        self.lane = lane
        self.message = message
        self.state = State.WAITING


class _Lane(Generic[M]):
    """The messages of a group in their order, the settled ones behind the front included."""

    __slots__ = ("group", "is_queued", "places")

    def __init__(self, group: str | None) -> None:
        self.group = group
        self.places: deque[_Place[M]] = deque()
        self.is_queued = False

    def front(self) -> _Place[M] | None:
        """The first unsettled message."""
        while self.places and self.places[0].state is State.GONE:
            self.places.popleft()
        return self.places[0] if self.places else None

    def run(self, most: int) -> list[_Place[M]]:
        """The waiting messages before the first that is out or held back."""
        run: list[_Place[M]] = []
        for place in self.places:
            if place.state is State.GONE:
                continue
            if place.state is not State.WAITING or len(run) == most:
                break
            run.append(place)
        return run


class GroupOrder(Generic[M]):
    """The unsettled messages a source has got from its broker, by a key that stays when a message comes again."""

    def __init__(self) -> None:
        self._places: dict[str, _Place[M]] = {}
        self._lanes: dict[str, _Lane[M]] = {}
        self._ready: deque[_Lane[M]] = deque()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    @property
    def ready_lanes(self) -> int:
        """How many groups have something to hand out; each message without a group counts as one."""
        return len(self._ready)

    def messages(self, *states: State) -> list[M]:
        """The messages in one of these states, in no order."""
        return [place.message for place in self._places.values() if place.state in states]

    def find(self, key: str) -> M | None:
        """The newest arrival of an unsettled message."""
        place = self._places.get(key)
        return place.message if place else None

    def arrive(self, key: str, group: str | None, message: M) -> None:
        """Take a message in behind its group, or at its old place if it came again; then what was out waits again."""
        place = self._places.get(key)
        if place is None:
            lane = self._lane(group)
            place = self._places[key] = _Place(key, lane, message)
            lane.places.append(place)
        place.message = message
        if place.state is State.OUT:
            place.state = State.WAITING
        self._queue(place.lane)

    def take(self, most: int) -> list[M]:
        """Hand messages out: groups in turn, of each the run at its front."""
        taken: list[M] = []
        while self._ready and len(taken) < most:
            lane = self._ready.popleft()
            lane.is_queued = False
            for place in lane.run(most - len(taken)):
                place.state = State.OUT
                taken.append(place.message)
        return taken

    def settle(self, key: str) -> M | None:
        """Remove a message for good; None if it is not here."""
        place = self._places.pop(key, None)
        if place is None:
            return None
        place.state = State.GONE
        if place.lane.front() is not None:
            self._queue(place.lane)
        elif place.lane.group is not None:
            self._lanes.pop(place.lane.group, None)
        return place.message

    def give_back(self, key: str) -> None:
        """Let a message wait at its place again: it was not settled, or its delay is over."""
        if place := self._places.get(key):
            place.state = State.WAITING
            self._queue(place.lane)

    def hold_back(self, key: str) -> None:
        """Keep a message and all later ones of its group until it is given back."""
        if place := self._places.get(key):
            place.state = State.HELD

    def clear(self) -> None:
        """Forget everything."""
        self._places.clear()
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


POLL_S = 20.0
# As many as the other sources hand out at once, so that a small pool has room for a whole batch.
MOST_PER_RECEIVE = 10


class Arrival(msgspec.Struct, eq=False):
    """A message as the broker delivered it last."""

    broker_id: str
    body: bytes
    group: str | None
    # By which the broker takes the acknowledgement of this delivery.
    token: str
    # Of the newest hand-out of this delivery; empty if there was none.
    handle: str = ""


class Shelf:
    """Hands arrivals out in group order, takes them back, and wakes who waits for them."""

    def __init__(self) -> None:
        self.order: GroupOrder[Arrival] = GroupOrder()
        self._handles = count(1)
        self._delays: dict[str, asyncio.TimerHandle] = {}
        self._changed = asyncio.Event()
        self._failure: PenstockError | None = None

    @property
    def failure(self) -> PenstockError | None:
        """Why nothing can be received."""
        return self._failure

    def arrive(self, arrival: Arrival) -> None:
        """Take in what the broker delivered."""
        self.order.arrive(arrival.broker_id, arrival.group, arrival)
        self._changed.set()

    async def receive(self) -> list[Received]:
        """The next messages, at once if there are any, else when some come or the poll ends."""
        ends_s = asyncio.get_running_loop().time() + POLL_S
        while True:
            if self._failure is not None:
                raise self._failure
            if taken := self.order.take(MOST_PER_RECEIVE):
                return [self._handed_out(arrival) for arrival in taken]
            self._changed.clear()
            try:
                async with asyncio.timeout_at(ends_s):
                    await self._changed.wait()
            except TimeoutError:
                return []

    def current(self, message: Received) -> Arrival | None:
        """The arrival behind a hand-out whose handle has not expired."""
        arrival = self.order.find(message.broker_id)
        return arrival if arrival is not None and arrival.handle == message.handle else None

    def settle(self, broker_id: str) -> None:
        """Forget a message for good; the next of its group may go."""
        self._end_delay(broker_id)
        if self.order.settle(broker_id) is not None:
            self._changed.set()

    def give_back(self, broker_id: str, delay_s: float = 0) -> None:
        """Hand a message out again, after the delay, and later ones of its group only after it."""
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
        """Forget everything: the broker will deliver it again."""
        self.order.clear()
        for timer in self._delays.values():
            timer.cancel()
        self._delays.clear()

    def fail(self, reason: PenstockError) -> None:
        """Let receives fail until `recover`."""
        self._failure = reason
        self._changed.set()

    def recover(self) -> None:
        """Let receives wait for messages again."""
        self._failure = None

    def _handed_out(self, arrival: Arrival) -> Received:
        arrival.handle = f"{arrival.broker_id}/{next(self._handles)}"
        return Received(arrival.broker_id, arrival.body, arrival.group, arrival.handle)

    def _end_delay(self, broker_id: str) -> None:
        if timer := self._delays.pop(broker_id, None):
            timer.cancel()

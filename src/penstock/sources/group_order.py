"""The order of groups for brokers that do not keep it themselves.

A source puts every message in as it arrives. Of a group, only the run of waiting messages at its front is handed out:
a message that is out or held back keeps every later one of its group waiting, and nothing of other groups. Every
operation is O(1), `take` O(1) per message.
"""

from collections import deque
from enum import Enum
from typing import Generic, TypeVar

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

"""The lanes of a pool, one per group, and their turns: a ring of lanes, so that no search is needed."""

from collections import deque
from collections.abc import Iterator

from penstock.domain.pointer import DispatchMode
from penstock.router.intake.tracker import BatchGroup, Stage, TrackedMessage


class _Tier:
    """A linked list of messages, first in, first out."""

    __slots__ = ("head", "tail")

    def __init__(self) -> None:
        self.head: TrackedMessage | None = None
        self.tail: TrackedMessage | None = None

    def push(self, message: TrackedMessage) -> None:
        if self.tail is None:
            self.head = message
        else:
            self.tail.next = message
        self.tail = message

    def pop(self) -> TrackedMessage | None:
        message = self.head
        if message is not None:
            self.head = message.next
            message.next = None
            if self.head is None:
                self.tail = None
        return message

    def __iter__(self) -> Iterator[TrackedMessage]:
        message = self.head
        while message is not None:
            following = message.next
            yield message
            message = following

    def take_blocked(self, batch_group: BatchGroup) -> list[TrackedMessage]:
        messages = list(self)
        self.head = self.tail = None
        taken = []
        for message in messages:
            message.next = None
            if message.batch_group is batch_group and batch_group.blocks(message.pointer):
                taken.append(message)
            else:
                self.push(message)
        return taken


class PoolLane:
    """The messages of one group, high priority first. At most one, `current`, is being delivered."""

    __slots__ = ("_high", "_regular", "current", "group", "size")

    def __init__(self, group: str) -> None:
        self.group = group
        self.size = 0
        # Being delivered, or backing off while it blocks its group.
        self.current: TrackedMessage | None = None
        self._regular = _Tier()
        # Most groups never have a priority message.
        self._high: _Tier | None = None

    def push(self, message: TrackedMessage) -> None:
        """Add a message at the end of its tier."""
        self.size += 1
        if not message.pointer.high_priority:
            self._regular.push(message)
            return
        if self._high is None:
            self._high = _Tier()
        self._high.push(message)

    def pop(self) -> TrackedMessage:
        """Remove and return the next message."""
        message = self._high.pop() if self._high is not None else None
        if message is None:
            message = self._regular.pop()
        assert message is not None, "an empty lane got a turn"
        self.size -= 1
        return message

    def take_blocked(self, batch_group: BatchGroup) -> list[TrackedMessage]:
        """Remove the messages that a failure in their batch blocks, in delivery order."""
        taken = self._high.take_blocked(batch_group) if self._high is not None else []
        taken += self._regular.take_blocked(batch_group)
        self.size -= len(taken)
        return taken

    def clear(self) -> list[TrackedMessage]:
        """Remove all waiting messages, in delivery order."""
        return [self.pop() for _ in range(self.size)]

    def held(self) -> Iterator[TrackedMessage]:
        """Return the messages that are not being delivered, in delivery order."""
        if self.current is not None and self.current.is_held:
            yield self.current
        if self._high is not None:
            yield from self._high
        yield from self._regular


class PoolLanes:
    """The lanes that have messages. A lane is in the ring while it waits for its turn."""

    def __init__(self) -> None:
        self._of_group: dict[str, PoolLane] = {}
        # Lanes waiting for their turn, the next one first.
        self.ring: deque[PoolLane] = deque()
        # One lane per message without order; a dictionary, as it keeps the order of arrival and a set does not.
        self._loose: dict[PoolLane, None] = {}
        self.queued = 0

    def __len__(self) -> int:
        return len(self._of_group) + len(self._loose)

    def __iter__(self) -> Iterator[PoolLane]:
        yield from self._of_group.values()
        yield from self._loose

    def add(self, message: TrackedMessage) -> None:
        """Add a message to its group's lane."""
        lane = self._lane_for(message)
        if lane.size == 0 and lane.current is None:
            self.ring.append(lane)
        lane.push(message)
        self.queued += 1

    def _lane_for(self, message: TrackedMessage) -> PoolLane:
        group = message.group
        if message.pointer.dispatch_mode is DispatchMode.IMMEDIATE:
            lane = PoolLane(group)
            self._loose[lane] = None
            return lane
        found = self._of_group.get(group)
        if found is None:
            found = self._of_group[group] = PoolLane(group)
        return found

    def next(self) -> PoolLane:
        """Give the next lane its turn, and return it; its `current` message is to be delivered."""
        lane = self.ring.popleft()
        if lane.current is None:
            lane.current = lane.pop()
            self.queued -= 1
        lane.current.stage = Stage.DELIVERING
        return lane

    def resume(self, lane: PoolLane) -> None:
        """Put a lane that still has its `current` message back into the ring."""
        assert lane.current is not None
        self.ring.append(lane)

    def release(self, lane: PoolLane) -> None:
        """End a lane's turn: append it to the ring if it has more messages, else remove it."""
        assert lane.current is None
        if lane.size:
            self.ring.append(lane)
        elif self._of_group.get(lane.group) is lane:
            del self._of_group[lane.group]
        else:
            self._loose.pop(lane, None)

    def take_blocked(self, lane: PoolLane, failed: TrackedMessage) -> list[TrackedMessage]:
        """Remove the messages of a lane that a failure in their batch blocks, in delivery order."""
        blocked = lane.take_blocked(failed.batch_group)
        self.queued -= len(blocked)
        return blocked

    def clear(self) -> list[TrackedMessage]:
        """Remove every message that is not being delivered, group by group in delivery order."""
        messages: list[TrackedMessage] = []
        for lane in list(self):
            # Backing off, or back in the ring: taken from its tier, but not being delivered.
            if lane.current is not None and lane.current.is_held:
                messages.append(lane.current)
                lane.current = None
            messages += lane.clear()
            if lane.current is None:
                self.release(lane)
        self.ring.clear()
        self.queued = 0
        return messages

    def oldest_tracked_s(self) -> float | None:
        """Return when the message that has waited longest was tracked."""
        times = (message.tracked_s for lane in self for message in lane.held())
        return min(times, default=None)

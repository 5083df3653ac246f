"""The lanes of a pool, and whose turn it is: groups are served in a ring, never searched for.

A lane: the waiting messages of one group of a pool, high priority first, else in order.
"""

from collections import deque
from collections.abc import Iterator

from penstock.domain.pointer import DispatchMode
from penstock.router.intake.tracker import BatchGroup, Stage, TrackedMessage


class _Tier:
    """A chain of messages: first in, first out."""

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
    """A group's queue. At most one of its messages is out at a time: `current`."""

    __slots__ = ("_high", "_regular", "current", "group", "size")

    def __init__(self, group: str) -> None:
        self.group = group
        self.size = 0
        # The message that is being delivered, or backs off and keeps the group's turn.
        self.current: TrackedMessage | None = None
        self._regular = _Tier()
        # Most groups never see a priority message.
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
        """Take the next message out."""
        message = self._high.pop() if self._high is not None else None
        if message is None:
            message = self._regular.pop()
        assert message is not None, "an empty lane was given a turn"
        self.size -= 1
        return message

    def take_blocked(self, batch_group: BatchGroup) -> list[TrackedMessage]:
        """Remove what may not go after a failure in its batch, in the order it would have gone."""
        taken = self._high.take_blocked(batch_group) if self._high is not None else []
        taken += self._regular.take_blocked(batch_group)
        self.size -= len(taken)
        return taken

    def clear(self) -> list[TrackedMessage]:
        """Remove all waiting messages, in the order they would have gone."""
        return [self.pop() for _ in range(self.size)]

    def held(self) -> Iterator[TrackedMessage]:
        """The messages that are not being delivered, in the order they will go."""
        if self.current is not None and self.current.is_held:
            yield self.current
        if self._high is not None:
            yield from self._high
        yield from self._regular


class PoolLanes:
    """Groups with messages. A lane is in the ring while it waits for its turn, and out of it while it has one."""

    def __init__(self) -> None:
        self._of_group: dict[str, PoolLane] = {}
        # Lanes that wait for their turn, the next one first.
        self.ring: deque[PoolLane] = deque()
        # What ignores order has a lane to itself, gone with its message; in the order they came, as a set is not.
        self._loose: dict[PoolLane, None] = {}
        self.queued = 0

    def __len__(self) -> int:
        return len(self._of_group) + len(self._loose)

    def __iter__(self) -> Iterator[PoolLane]:
        yield from self._of_group.values()
        yield from self._loose

    def add(self, message: TrackedMessage) -> None:
        """Put a message into its group's lane."""
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
        """Give the lane that has waited longest its turn: its `current` message is the one to deliver."""
        lane = self.ring.popleft()
        if lane.current is None:
            lane.current = lane.pop()
            self.queued -= 1
        lane.current.stage = Stage.DELIVERING
        return lane

    def resume(self, lane: PoolLane) -> None:
        """Let a lane that kept its `current` message wait for a turn again."""
        assert lane.current is not None
        self.ring.append(lane)

    def release(self, lane: PoolLane) -> None:
        """A turn is over: to the end of the ring if the lane has more, else it is forgotten."""
        assert lane.current is None
        if lane.size:
            self.ring.append(lane)
        elif self._of_group.get(lane.group) is lane:
            del self._of_group[lane.group]
        else:
            self._loose.pop(lane, None)

    def take_blocked(self, lane: PoolLane, failed: TrackedMessage) -> list[TrackedMessage]:
        """Remove what may not go after a failure in its batch, in order."""
        blocked = lane.take_blocked(failed.batch_group)
        self.queued -= len(blocked)
        return blocked

    def clear(self) -> list[TrackedMessage]:
        """Remove every message that is not being delivered, group by group in order."""
        messages: list[TrackedMessage] = []
        for lane in list(self):
            # In the ring with a message of its own, or backing off: it has been taken but is not out.
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
        """Since when the message that has waited longest is here."""
        times = (message.tracked_s for lane in self for message in lane.held())
        return min(times, default=None)

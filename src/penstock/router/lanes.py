"""The lanes of a pool, and whose turn it is: groups are served in a ring, never searched for."""

from collections import deque
from collections.abc import Iterator

from penstock.domain.pointer import DispatchMode
from penstock.router.lane import Lane
from penstock.router.tracked import Stage, TrackedMessage


class Lanes:
    """Groups with messages. A lane is in the ring while it waits for its turn, and out of it while it has one."""

    def __init__(self) -> None:
        self._of_group: dict[str, Lane] = {}
        # Lanes that wait for their turn, the next one first.
        self.ring: deque[Lane] = deque()
        # What ignores order has a lane to itself, gone with its message; in the order they came, as a set is not.
        self._loose: dict[Lane, None] = {}
        self.queued = 0

    def __len__(self) -> int:
        return len(self._of_group) + len(self._loose)

    def __iter__(self) -> Iterator[Lane]:
        yield from self._of_group.values()
        yield from self._loose

    def add(self, message: TrackedMessage) -> None:
        """Put a message into its group's lane."""
        lane = self._lane_for(message)
        if lane.size == 0 and lane.current is None:
            self.ring.append(lane)
        lane.push(message)
        self.queued += 1

    def _lane_for(self, message: TrackedMessage) -> Lane:
        group = message.group
        if message.pointer.dispatch_mode is DispatchMode.IMMEDIATE:
            lane = Lane(group)
            self._loose[lane] = None
            return lane
        found = self._of_group.get(group)
        if found is None:
            found = self._of_group[group] = Lane(group)
        return found

    def next(self) -> Lane:
        """Give the lane that has waited longest its turn: its `current` message is the one to deliver."""
        lane = self.ring.popleft()
        if lane.current is None:
            lane.current = lane.pop()
            self.queued -= 1
        lane.current.stage = Stage.DELIVERING
        return lane

    def resume(self, lane: Lane) -> None:
        """Let a lane that kept its `current` message wait for a turn again."""
        assert lane.current is not None
        self.ring.append(lane)

    def release(self, lane: Lane) -> None:
        """A turn is over: to the end of the ring if the lane has more, else it is forgotten."""
        assert lane.current is None
        if lane.size:
            self.ring.append(lane)
        elif self._of_group.get(lane.group) is lane:
            del self._of_group[lane.group]
        else:
            self._loose.pop(lane, None)

    def take_blocked(self, lane: Lane, failed: TrackedMessage) -> list[TrackedMessage]:
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

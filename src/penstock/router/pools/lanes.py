"""The lanes of a pool, one per group, and their turns: rings, so that no search is needed (ROUTER-ISOLATE-4).

Turns go round over subscriptions, and within a subscription over its lanes. The subscription is the part of a group
before its first colon; a group without a colon is a subscription of its own.
"""

from collections import deque
from collections.abc import Callable, Iterator
from math import inf

from penstock.domain.pointer import DispatchMode
from penstock.router.intake.tracker import Stage, TrackedMessage

# A pool is shared for this time after it last had messages of two subscriptions. Shorter than a hanging delivery, a
# subscription that sends rarely would find that another has taken all permits in the meantime.
SHARED_S = 600.0


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

    def take_blocked_by(self, failed: TrackedMessage) -> list[TrackedMessage]:
        messages = list(self)
        self.head = self.tail = None
        taken = []
        for message in messages:
            message.next = None
            if message.is_blocked_by(failed):
                taken.append(message)
            else:
                self.push(message)
        return taken


class PoolLane:
    """The messages of one group, high priority first. At most one, `current`, is being delivered."""

    __slots__ = ("_high", "_regular", "current", "group", "share", "size")

    def __init__(self, group: str, share: "SubscriptionShare") -> None:
        self.group = group
        self.share = share
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

    def take_blocked_by(self, failed: TrackedMessage) -> list[TrackedMessage]:
        """Remove the messages that a failed one blocks, in delivery order."""
        taken = self._high.take_blocked_by(failed) if self._high is not None else []
        taken += self._regular.take_blocked_by(failed)
        self.size -= len(taken)
        return taken

    def first(self) -> TrackedMessage:
        """Return the message of the lane's next turn."""
        if self.current is not None:
            return self.current
        message = (self._high.head if self._high is not None else None) or self._regular.head
        assert message is not None, "an empty lane waits for a turn"
        return message

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


class SubscriptionShare:
    """What one subscription has of a pool: lanes, permits and room."""

    __slots__ = ("delivering", "held", "is_queued", "lanes", "name", "ring")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes = 0
        # Number of its messages that are being delivered, and that wait or back off.
        self.delivering = 0
        self.held = 0
        # Lanes waiting for their turn, the next one first.
        self.ring: deque[PoolLane] = deque()
        # Whether it is in the ring of subscriptions. It is not while it waits for one of its own deliveries to end.
        self.is_queued = False


class PoolLanes:
    """The lanes that have messages, by subscription. A lane is in a ring while it waits for its turn."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._of_group: dict[str, PoolLane] = {}
        # One lane per message without order; a dictionary, as it keeps the order of arrival and a set does not.
        self._loose: dict[PoolLane, None] = {}
        self._shares: dict[str, SubscriptionShare] = {}
        # Subscriptions waiting for their turn, the next one first.
        self._ring: deque[SubscriptionShare] = deque()
        # Whether the configuration says so; else it shows in the messages.
        self.configured_shared = False
        # Subscriptions that may have fewer turns at once than they could.
        self._limits: dict[str, int] = {}
        # When two messages in a row were of different subscriptions.
        self._shared_s = -inf
        self._newest = ""
        self.queued = 0
        self.backing_off = 0

    def __len__(self) -> int:
        return len(self._of_group) + len(self._loose)

    def __iter__(self) -> Iterator[PoolLane]:
        yield from self._of_group.values()
        yield from self._loose

    @property
    def is_shared(self) -> bool:
        """Whether several subscriptions have the pool, or have used it lately."""
        return self.configured_shared or self._now_s() - self._shared_s < SHARED_S

    def held_of(self, subscription: str) -> int:
        """Return the number of a subscription's messages that wait or back off."""
        share = self._shares.get(subscription)
        return 0 if share is None else share.held

    def add(self, message: TrackedMessage) -> None:
        """Add a message to its group's lane."""
        lane = self._lane_for(message)
        share = lane.share
        if share.name != self._newest:
            if self._newest:
                self._shared_s = message.tracked_s
            self._newest = share.name
        if lane.size == 0 and lane.current is None:
            self._queue(lane)
        lane.push(message)
        share.held += 1
        self.queued += 1

    def _lane_for(self, message: TrackedMessage) -> PoolLane:
        group = message.group
        if message.pointer.dispatch_mode is DispatchMode.IMMEDIATE:
            lane = self._new_lane(group)
            self._loose[lane] = None
            return lane
        found = self._of_group.get(group)
        if found is None:
            found = self._of_group[group] = self._new_lane(group)
        return found

    def _new_lane(self, group: str) -> PoolLane:
        name = subscription_of(group)
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = SubscriptionShare(name)
        share.lanes += 1
        return PoolLane(group, share)

    def _queue(self, lane: PoolLane) -> None:
        share = lane.share
        share.ring.append(lane)
        if not share.is_queued:
            share.is_queued = True
            self._ring.append(share)

    def has_turn(self, permits: int) -> bool:
        """Return whether a lane may have a turn; a subscription of a shared pool has half of the permits at most.

        One that has as many, or is limited, leaves the ring until one of its deliveries ends or its limit changes.
        """
        ring = self._ring
        most = (permits + 1) // 2
        while ring:
            share = ring[0]
            if (share.delivering < most or not self.is_shared) and not self._is_limited(share):
                return True
            share.is_queued = False
            ring.popleft()
        return False

    def _is_limited(self, share: SubscriptionShare) -> bool:
        return bool(self._limits) and share.delivering >= self._limits.get(share.name, inf)

    @property
    def has_limits(self) -> bool:
        """Whether any subscription is limited."""
        return bool(self._limits)

    def limit(self, subscription: str, turns: int) -> None:
        """Limit the turns that a subscription has at once, until it has no messages here."""
        if (share := self._shares.get(subscription)) is not None:
            self._limits[subscription] = turns
            self._try_again(share)

    def lift_limit(self, subscription: str) -> None:
        """Let a subscription have as many turns as it can."""
        if self._limits.pop(subscription, None) is not None and (share := self._shares.get(subscription)) is not None:
            self._try_again(share)

    def first(self) -> TrackedMessage:
        """Return the message of the next turn."""
        return self._ring[0].ring[0].first()

    def next(self) -> PoolLane:
        """Give the next lane its turn, and return it; its `current` message is to be delivered."""
        share = self._ring.popleft()
        lane = share.ring.popleft()
        if share.ring:
            self._ring.append(share)
        else:
            share.is_queued = False
        if lane.current is None:
            lane.current = lane.pop()
        self.queued -= 1
        share.held -= 1
        share.delivering += 1
        lane.current.stage = Stage.DELIVERING
        return lane

    def back_off(self, lane: PoolLane) -> None:
        """End a lane's turn; its `current` message blocks it until `resume`."""
        assert lane.current is not None
        lane.current.stage = Stage.BACKING_OFF
        self.backing_off += 1
        lane.share.held += 1
        self._end_turn(lane.share)

    def resume(self, lane: PoolLane) -> None:
        """Put a lane that backed off back into the ring."""
        self.backing_off -= 1
        self.queued += 1
        self._queue(lane)

    def release(self, lane: PoolLane) -> None:
        """End a lane's turn: put it into the ring if it has more messages, else remove it."""
        assert lane.current is None
        if lane.size:
            lane.share.ring.append(lane)
        else:
            self._remove(lane)
        self._end_turn(lane.share)

    def _end_turn(self, share: SubscriptionShare) -> None:
        share.delivering -= 1
        self._try_again(share)

    def _try_again(self, share: SubscriptionShare) -> None:
        if share.ring and not share.is_queued:
            share.is_queued = True
            self._ring.append(share)

    def _remove(self, lane: PoolLane) -> None:
        share = lane.share
        share.lanes -= 1
        if not share.lanes:
            del self._shares[share.name]
            self._limits.pop(share.name, None)
        if self._of_group.get(lane.group) is lane:
            del self._of_group[lane.group]
        else:
            del self._loose[lane]

    def queue_all(self) -> None:
        """Let every subscription try for a turn, as the number of permits has changed."""
        for share in self._shares.values():
            self._try_again(share)

    def take_blocked(self, lane: PoolLane, failed: TrackedMessage) -> list[TrackedMessage]:
        """Remove the messages of a lane that a failed one blocks, in delivery order."""
        blocked = lane.take_blocked_by(failed)
        lane.share.held -= len(blocked)
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
            lane.share.ring.clear()
            lane.share.is_queued = False
            lane.share.held = 0
            if lane.current is None:
                self._remove(lane)
        self._ring.clear()
        self.queued = self.backing_off = 0
        return messages

    def oldest_tracked_s(self) -> float | None:
        """Return when the message that has waited longest was tracked."""
        times = (message.tracked_s for lane in self for message in lane.held())
        return min(times, default=None)


def subscription_of(group: str) -> str:
    """Return the subscription of a group: `subscription:key`, or the group itself."""
    return group.partition(":")[0] if ":" in group else group

"""A lane: the waiting messages of one group of a pool, high priority first, else in order."""

from collections.abc import Iterator

from penstock.router.tracked import BatchGroup, TrackedMessage


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


class Lane:
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

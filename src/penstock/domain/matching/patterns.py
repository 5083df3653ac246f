"""Patterns over the type of events, and an index of patterns.

A type is segments joined by colons (`orders:eu:shipment:created`). In a pattern `*` matches exactly one segment, and
`**`, allowed only as the last segment, matches the rest of the type, which may be empty.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from penstock.domain.errors import InvalidArgument

SEPARATOR = ":"
ONE_SEGMENT = "*"
REST = "**"

Subscriber = TypeVar("Subscriber")


class EventPattern(msgspec.Struct, frozen=True):
    """A valid pattern."""

    segments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "EventPattern":
        """Parse a pattern; raise InvalidArgument if it is malformed."""
        segments = tuple(text.split(SEPARATOR))
        for place, segment in enumerate(segments):
            reason = _error_in(segment, last=place == len(segments) - 1)
            if reason:
                raise InvalidArgument(f"the event pattern {text!r} cannot be used: {reason}")
        return cls(segments)

    def __str__(self) -> str:
        return SEPARATOR.join(self.segments)


def _error_in(segment: str, *, last: bool) -> str | None:
    if not segment:
        return "a segment is empty; write * for any one segment"
    if segment == REST and not last:
        return "** stands for the rest, so it can only be the last segment"
    if ONE_SEGMENT in segment and segment not in (ONE_SEGMENT, REST):
        return f"{segment!r} mixes * with other characters; * stands for a whole segment"
    return None


class _Node(Generic[Subscriber]):
    __slots__ = ("any_segment", "by_segment", "end", "rest")

    def __init__(self) -> None:
        self.by_segment: dict[str, _Node[Subscriber]] = {}
        self.any_segment: _Node[Subscriber] | None = None
        self.end: list[Subscriber] = []
        self.rest: list[Subscriber] = []


class PatternIndex(Generic[Subscriber]):
    """Subscribers in a tree by segment: a lookup costs the depth of the type, not the number of subscribers."""

    def __init__(self, subscribers: Iterable[tuple[EventPattern, Subscriber]] = ()) -> None:
        self._root: _Node[Subscriber] = _Node()
        for pattern, value in subscribers:
            self.add(pattern, value)

    def add(self, pattern: EventPattern, value: Subscriber) -> None:
        """Add a subscriber to events whose type matches."""
        node = self._root
        for segment in pattern.segments:
            if segment == REST:
                node.rest.append(value)
                return
            if segment == ONE_SEGMENT:
                node.any_segment = node.any_segment or _Node()
                node = node.any_segment
            else:
                node = node.by_segment.setdefault(segment, _Node())
        node.end.append(value)

    def matching(self, event_type: str) -> list[Subscriber]:
        """Return the subscribers to events of this type, each once for every matching pattern it was added with."""
        found: list[Subscriber] = []
        nodes = [self._root]
        for segment in event_type.split(SEPARATOR):
            following: list[_Node[Subscriber]] = []
            for node in nodes:
                found += node.rest
                named = node.by_segment.get(segment)
                if named is not None:
                    following.append(named)
                if node.any_segment is not None:
                    following.append(node.any_segment)
            nodes = following
        for node in nodes:
            found += node.rest
            found += node.end
        return found

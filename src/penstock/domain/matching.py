"""Which subscriptions want an event: patterns over its type, and an index that asks many of them at once.

A type is segments joined by colons (`orders:eu:shipment:created`). In a pattern `*` stands for exactly one segment, and
`**`, only as the last segment, for the rest of the type, which may be empty.

Which of the events of a wanted type a subscription takes: conditions on the event's attributes.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from penstock.domain.errors import InvalidArgument

SEPARATOR = ":"
ONE_SEGMENT = "*"
THE_REST = "**"

Wanting = TypeVar("Wanting")


class EventPattern(msgspec.Struct, frozen=True):
    """A pattern that was found to be well formed."""

    segments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "EventPattern":
        """The pattern a person wrote; InvalidArgument says what is wrong with it."""
        segments = tuple(text.split(SEPARATOR))
        for place, segment in enumerate(segments):
            reason = _fault(segment, last=place == len(segments) - 1)
            if reason:
                raise InvalidArgument(f"the event pattern {text!r} cannot be used: {reason}")
        return cls(segments)

    def __str__(self) -> str:
        return SEPARATOR.join(self.segments)


def _fault(segment: str, *, last: bool) -> str | None:
    if not segment:
        return "a segment is empty; write * for any one segment"
    if segment == THE_REST and not last:
        return "** stands for the rest, so it can only be the last segment"
    if ONE_SEGMENT in segment and segment not in (ONE_SEGMENT, THE_REST):
        return f"{segment!r} mixes * with other characters; * stands for a whole segment"
    return None


class _Node(Generic[Wanting]):
    __slots__ = ("any_segment", "by_segment", "ends_here", "takes_rest")

    def __init__(self) -> None:
        self.by_segment: dict[str, _Node[Wanting]] = {}
        self.any_segment: _Node[Wanting] | None = None
        self.ends_here: list[Wanting] = []
        self.takes_rest: list[Wanting] = []


class PatternIndex(Generic[Wanting]):
    """Everything that wants events, in a tree by segment: asking costs the depth of the type, not the number asked."""

    def __init__(self, wanting: Iterable[tuple[EventPattern, Wanting]] = ()) -> None:
        self._root: _Node[Wanting] = _Node()
        for pattern, value in wanting:
            self.add(pattern, value)

    def add(self, pattern: EventPattern, value: Wanting) -> None:
        """`value` wants events whose type matches."""
        node = self._root
        for segment in pattern.segments:
            if segment == THE_REST:
                node.takes_rest.append(value)
                return
            if segment == ONE_SEGMENT:
                node.any_segment = node.any_segment or _Node()
                node = node.any_segment
            else:
                node = node.by_segment.setdefault(segment, _Node())
        node.ends_here.append(value)

    def matching(self, event_type: str) -> list[Wanting]:
        """All that want an event of this type; each as often as it was added with a matching pattern."""
        found: list[Wanting] = []
        nodes = [self._root]
        for segment in event_type.split(SEPARATOR):
            following: list[_Node[Wanting]] = []
            for node in nodes:
                found += node.takes_rest
                named = node.by_segment.get(segment)
                if named is not None:
                    following.append(named)
                if node.any_segment is not None:
                    following.append(node.any_segment)
            nodes = following
        for node in nodes:
            found += node.takes_rest
            found += node.ends_here
        return found


class Comparison(StrEnum):
    """How an attribute is held against the values of a condition."""

    IN = "in"
    NOT_IN = "not_in"
    PREFIX = "prefix"
    PRESENT = "present"
    ABSENT = "absent"


_WITHOUT_VALUES = (Comparison.PRESENT, Comparison.ABSENT)


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One demand on one attribute; an attribute that is missing meets only `absent` and `not_in`."""

    attribute: str
    comparison: Comparison = Comparison.IN
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.attribute:
            raise InvalidArgument("a filter's condition names no attribute")
        if (self.comparison in _WITHOUT_VALUES) == bool(self.values):
            needs = "takes no values" if self.values else "needs at least one value"
            raise InvalidArgument(f"the condition on {self.attribute!r} is {self.comparison}: it {needs}")

    def holds(self, attributes: Mapping[str, str]) -> bool:
        """Whether an event with these attributes meets it."""
        value = attributes.get(self.attribute)
        match self.comparison:
            case Comparison.PRESENT:
                return value is not None
            case Comparison.ABSENT:
                return value is None
            case Comparison.NOT_IN:
                return value not in self.values
            case Comparison.PREFIX:
                return value is not None and value.startswith(self.values)
            case Comparison.IN:
                return value in self.values


class EventFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Conditions that must all hold; without any, every event passes."""

    conditions: tuple[Condition, ...] = ()

    def passes(self, attributes: Mapping[str, str]) -> bool:
        """Whether an event with these attributes is taken."""
        return all(condition.holds(attributes) for condition in self.conditions)

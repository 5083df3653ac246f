"""Filters of subscriptions: conditions on an event's attributes, and an expression over its attributes and data."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.event import Filterable
from penstock.domain.matching.expression import compiled


class Comparison(StrEnum):
    """How an attribute is compared with the values of a condition."""

    IN = "in"
    NOT_IN = "not_in"
    PREFIX = "prefix"
    PRESENT = "present"
    ABSENT = "absent"


_WITHOUT_VALUES = (Comparison.PRESENT, Comparison.ABSENT)


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition on one attribute; a missing attribute meets only `absent` and `not_in`."""

    attribute: str
    comparison: Comparison = Comparison.IN
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.attribute:
            raise InvalidArgument("a filter condition must name an attribute")
        if (self.comparison in _WITHOUT_VALUES) == bool(self.values):
            needs = "takes no values" if self.values else "needs at least one value"
            raise InvalidArgument(f"the condition on {self.attribute!r} is {self.comparison}: it {needs}")

    def holds(self, attributes: Mapping[str, str]) -> bool:
        """Return whether an event with these attributes meets the condition."""
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
    """Conditions and an expression, which must all hold; without any, every event passes."""

    conditions: tuple[Condition, ...] = ()
    expression: str = ""

    def __post_init__(self) -> None:
        if self.expression:
            compiled(self.expression)

    @property
    def is_empty(self) -> bool:
        """Whether every event passes."""
        return not self.conditions and not self.expression

    @property
    def reads_data(self) -> bool:
        """Whether it looks at the data of events, not only at their attributes."""
        return bool(self.expression) and compiled(self.expression).reads_data

    def passes(self, event: Filterable) -> bool:
        """Return whether an event passes."""
        return all(condition.holds(event.attributes) for condition in self.conditions) and (
            not self.expression or compiled(self.expression).matches(event)
        )

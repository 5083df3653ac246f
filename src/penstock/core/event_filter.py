"""Which of the events of a wanted type a subscription takes: conditions on the event's attributes."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from penstock.core.errors import InvalidArgument


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

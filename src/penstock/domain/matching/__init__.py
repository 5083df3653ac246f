"""Which subscriptions want an event: patterns over its type, and filters on its attributes and data."""

from penstock.domain.matching.filters import Comparison, Condition, EventFilter
from penstock.domain.matching.patterns import ONE_SEGMENT, REST, SEPARATOR, EventPattern, PatternIndex

__all__ = [
    "ONE_SEGMENT",
    "REST",
    "SEPARATOR",
    "Comparison",
    "Condition",
    "EventFilter",
    "EventPattern",
    "PatternIndex",
]

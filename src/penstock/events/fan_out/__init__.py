"""Fan-out: events × subscriptions → jobs, by the inline engine or by Spark."""

from penstock.events.fan_out.inline import EventPublisher, publisher_for
from penstock.events.fan_out.rule import FanOut

__all__ = [
    "EventPublisher",
    "FanOut",
    "publisher_for",
]

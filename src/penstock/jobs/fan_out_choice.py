"""Who makes the jobs of published events: the one place where that is chosen."""

from collections.abc import Sequence
from typing import Protocol

from penstock.domain.event import Event
from penstock.edge.clock import Clock
from penstock.jobs.fan_out_inline import InlinePublisher
from penstock.jobs.fan_out_later import LaterPublisher
from penstock.jobs.repository import JobRepository
from penstock.ops.config.dispatch_options import FanOutBy


class EventPublisher(Protocol):
    """Takes events that somebody publishes."""

    async def publish(self, events: Sequence[Event]) -> list[str]:
        """Keep events, and answer after the commit; the id of each, or of the same event told before."""
        ...


def publisher_for(fan_out: FanOutBy, repository: JobRepository, clock: Clock) -> EventPublisher:
    """The publisher that leaves the jobs to who is to make them."""
    return LaterPublisher(repository) if fan_out is FanOutBy.PIPELINE else InlinePublisher(repository, clock)

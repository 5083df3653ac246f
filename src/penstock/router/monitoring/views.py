"""What the router shows of itself: the values behind /monitoring and /metrics.

What the API, the metrics and the configuration sync know of the router.
"""

from collections.abc import Iterable
from heapq import nsmallest
from typing import Protocol

import msgspec

from penstock.delivery import BreakerView
from penstock.router.config.configuration import RouterConfiguration


class RouterPoolView(msgspec.Struct, frozen=True, rename="camel"):
    """A pool at this moment, and what it has done since it started."""

    code: str
    concurrency: int
    rate_limit_per_minute: int | None
    queue_capacity: int
    queued: int
    active: int
    backing_off: int
    available_permits: int
    groups: int
    rate_limited: bool
    draining: bool
    oldest_waiting_s: float
    succeeded: int
    failed: int
    transient: int
    deferred: int
    rate_limit_waits: int
    submitted: int
    success_rate: float
    average_processing_ms: float


class RouterGroupView(msgspec.Struct, frozen=True, rename="camel"):
    """A group of a pool: its queue, and how it does."""

    pool: str
    group: str
    queued: int
    active: bool
    oldest_waiting_s: float


def longest(groups: Iterable[RouterGroupView], most: int) -> list[RouterGroupView]:
    """The groups with the most messages waiting."""
    return nsmallest(most, groups, lambda group: (-group.queued, group.pool, group.group))


class QueueView(msgspec.Struct, frozen=True, rename="camel"):
    """A consumed queue."""

    name: str
    uri: str
    connections: int
    polls: int
    received: int
    acked: int
    nacked: int
    malformed: int
    in_flight: int
    paused: bool
    healthy: bool
    last_poll_age_s: float | None
    draining: bool


class InFlightView(msgspec.Struct, frozen=True, rename="camel"):
    """A message that is tracked."""

    message_id: str
    broker_message_id: str
    queue: str
    pool_code: str
    message_group_id: str
    mediation_target: str
    state: str
    attempt: int
    tracked_at_ms: int
    elapsed_ms: int


InFlightPlace = tuple[float, str]
"""When a message was first tracked, on the clock of the router's loop, and its id: it keeps both while it is here."""


class InFlightFilter(msgspec.Struct, frozen=True):
    """Which tracked messages are asked for; what is None is not asked. An id is the message's own or the broker's."""

    message_id: str | None = None
    pool: str | None = None
    queue: str | None = None


class InFlightPage(msgspec.Struct, frozen=True):
    """Tracked messages, the oldest first, and the place of the last one; None if there are no more behind it."""

    messages: list[InFlightView]
    last: InFlightPlace | None


class RouterSurface(Protocol):
    """A running router, seen from outside."""

    async def apply(self, configuration: RouterConfiguration) -> None:
        """Make it so: pools added, changed and drained, consumers started and stopped.

        If it is cancelled half-way, the next call does the rest.
        """

    def pools(self) -> list[RouterPoolView]:
        """The pools, those that are draining too."""
        ...

    def queues(self) -> list[QueueView]:
        """The consumed queues, those that are stopping too."""
        ...

    def groups(self, pool: str | None) -> list[RouterGroupView]:
        """Groups with messages, of one pool or of all."""
        ...

    def in_flight(self, most: int, wanted: InFlightFilter, after: InFlightPlace | None) -> InFlightPage:
        """The tracked messages asked for that come after a place, the oldest first."""
        ...

    def find(self, message_id: str) -> InFlightView | None:
        """A tracked message by the id of the application or of the broker."""
        ...

    def breakers(self) -> list[BreakerView]:
        """The breakers of the endpoints."""
        ...

    def reset_breaker(self, endpoint: str) -> bool:
        """Close a breaker; whether there is one."""
        ...

    def reset_breakers(self) -> int:
        """Close all breakers; how many there are."""
        ...

    async def change_pool(
        self, code: str, *, concurrency: int | None, rate_limit_per_minute: int | None, unlimited_rate: bool
    ) -> bool:
        """Change what is not None (`unlimited_rate` takes the limit away); False if there is no such pool.

        FailedPrecondition if deliveries did not end in time for a lower concurrency.
        """
        ...

    async def restart_consumer(self, name: str) -> bool:
        """Replace the consumer of a queue; False if there is none, or no new one could be started."""
        ...

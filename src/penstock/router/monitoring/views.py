"""Views of the router: the values of /monitoring and /metrics, and the protocol that provides them."""

from collections.abc import Iterable
from heapq import nsmallest
from typing import Protocol

import msgspec

from penstock.delivery import BreakerView
from penstock.router.config.configuration import RouterConfiguration


class RouterPoolView(msgspec.Struct, frozen=True, rename="camel"):
    """The current state of a pool, and its counts since it started.

    `success_rate` is that of the `judged` messages, which succeeded or failed in the last five minutes.
    """

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
    judged: int
    average_processing_ms: float


class RouterGroupView(msgspec.Struct, frozen=True, rename="camel"):
    """The current state of a group of a pool."""

    pool: str
    group: str
    queued: int
    active: bool
    oldest_waiting_s: float


def longest(groups: Iterable[RouterGroupView], most: int) -> list[RouterGroupView]:
    """Return the groups with the most waiting messages."""
    return nsmallest(most, groups, lambda group: (-group.queued, group.pool, group.group))


class QueueView(msgspec.Struct, frozen=True, rename="camel"):
    """The current state of a consumed queue, and its counts."""

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
    missing: bool = False
    """Whether the server answers that there is no such queue."""


class InFlightView(msgspec.Struct, frozen=True, rename="camel"):
    """A message in flight."""

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


InFlightPosition = tuple[float, str]
"""When a message was first tracked, on the event loop's clock, and its id: both stay the same while it is in flight."""


class InFlightFilter(msgspec.Struct, frozen=True):
    """A filter of messages in flight; None matches all. The id is the message's own or the broker's."""

    message_id: str | None = None
    pool: str | None = None
    queue: str | None = None


class InFlightPage(msgspec.Struct, frozen=True):
    """Messages in flight, the oldest first, and the position of the last one; None if no more follow."""

    messages: list[InFlightView]
    last: InFlightPosition | None


class RouterSurface(Protocol):
    """A running router, as the API, the metrics and the configuration sync use it."""

    async def apply(self, configuration: RouterConfiguration) -> None:
        """Create, change and drain pools, start and stop consumers.

        If it is cancelled, the next call does the rest.
        """

    def pools(self) -> list[RouterPoolView]:
        """Return the pools, including draining ones."""
        ...

    def queues(self) -> list[QueueView]:
        """Return the consumed queues, including stopping ones."""
        ...

    def groups(self, pool: str | None) -> list[RouterGroupView]:
        """Return the groups that have messages, of one pool or of all."""
        ...

    def in_flight(self, most: int, wanted: InFlightFilter, after: InFlightPosition | None) -> InFlightPage:
        """Return matching messages in flight after a position, the oldest first."""
        ...

    def find(self, message_id: str) -> InFlightView | None:
        """Return a message in flight by its own id or the broker's."""
        ...

    def breakers(self) -> list[BreakerView]:
        """Return the breakers of all endpoints."""
        ...

    def reset_breaker(self, endpoint: str) -> bool:
        """Close a breaker; return False if there is none."""
        ...

    def reset_breakers(self) -> int:
        """Close all breakers, and return their number."""
        ...

    async def change_pool(
        self, code: str, *, concurrency: int | None, rate_limit_per_minute: int | None, unlimited_rate: bool
    ) -> bool:
        """Change the limits that are not None (`unlimited_rate` removes the rate limit).

        Return False if there is no such pool; raise FailedPrecondition if deliveries do not end in time for a lower
        concurrency.
        """
        ...

    async def restart_consumer(self, name: str) -> bool:
        """Replace the consumer of a queue; return False if there is none, or if no new one could be started."""
        ...

"""What the API, the metrics and the configuration sync know of the router."""

from typing import Protocol

from penstock.delivery.breaker_view import BreakerView
from penstock.router.configuration import RouterConfiguration
from penstock.router.views import (
    GroupView,
    InFlightFilter,
    InFlightPage,
    InFlightPlace,
    InFlightView,
    PoolView,
    QueueView,
)


class RouterSurface(Protocol):
    """A running router, seen from outside."""

    async def apply(self, configuration: RouterConfiguration) -> None:
        """Make it so: pools added, changed and drained, consumers started and stopped.

        If it is cancelled half-way, the next call does the rest.
        """

    def pools(self) -> list[PoolView]:
        """The pools, those that are draining too."""
        ...

    def queues(self) -> list[QueueView]:
        """The consumed queues, those that are stopping too."""
        ...

    def groups(self, pool: str | None) -> list[GroupView]:
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

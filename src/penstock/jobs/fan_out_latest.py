"""The subscriptions as they are now, read once for all events that are published at the same time."""

import asyncio

from penstock.domain.subscription import Subscription
from penstock.jobs.fan_out import FanOut
from penstock.jobs.repository import JobRepository


class LatestFanOut:
    """Knows all subscriptions that were made before it is asked; another node may have made them."""

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository
        self._known: list[Subscription] = []
        self._fan_out = FanOut(())
        self._under_way: asyncio.Task[FanOut] | None = None
        self._next: asyncio.Task[FanOut] | None = None

    async def current(self) -> FanOut:
        """As of a moment after this call."""
        # A read that is under way may have missed what was made just now: all who come meanwhile share the next one.
        if self._next is None:
            self._next = asyncio.create_task(self._read(self._under_way), name="read subscriptions")
        # One caller that goes away must not take the read from the others.
        return await asyncio.shield(self._next)

    async def _read(self, before: "asyncio.Task[FanOut] | None") -> FanOut:
        if before is not None:
            await asyncio.wait((before,))
        self._under_way, self._next = self._next, None
        subscriptions = await self._repository.list_subscriptions()
        if subscriptions != self._known:
            self._known, self._fan_out = subscriptions, FanOut(subscriptions)
        return self._fan_out

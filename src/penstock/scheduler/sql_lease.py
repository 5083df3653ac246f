"""The leader's lease in the jobs database, SQLite or PostgreSQL."""

from typing import Protocol

from penstock.edge.clock import Clock
from penstock.jobs.leading import LeaderLease


class LeaseTable(Protocol):
    """The part of the job repository that keeps leases."""

    async def acquire_lease(self, name: str, holder: str, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        """Take a lease that nobody holds."""
        ...

    async def renew_lease(self, lease: LeaderLease, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        """Hold a lease for longer."""
        ...

    async def release_lease(self, lease: LeaderLease, now_ms: int) -> bool:
        """Let the next one have it at once."""
        ...


class SqlLease:
    """A lease by name; the nodes' clocks must agree to well within its time."""

    def __init__(self, table: LeaseTable, clock: Clock, name: str, holder: str) -> None:
        self._table = table
        self._clock = clock
        self._name = name
        self._holder = holder

    async def acquire(self, ttl_s: float) -> int | None:
        """Take the lease if nobody holds it; the fencing token, or None."""
        lease = await self._table.acquire_lease(self._name, self._holder, self._clock.now_ms(), round(ttl_s * 1000))
        return None if lease is None else lease.token

    async def renew(self, token: int, ttl_s: float) -> bool:
        """Hold it for another `ttl_s` from now."""
        renewed = await self._table.renew_lease(self._held(token), self._clock.now_ms(), round(ttl_s * 1000))
        return renewed is not None

    async def release(self, token: int) -> None:
        """Let the next one have it at once."""
        await self._table.release_lease(self._held(token), self._clock.now_ms())

    def _held(self, token: int) -> LeaderLease:
        return LeaderLease(self._name, self._holder, token, 0)

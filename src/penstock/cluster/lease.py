"""The leader's lease: the port, a lease in the database of events, and one stored elsewhere with a fencing token.

Every implementation passes tests/conformance/test_leader_lease.py.
"""

from typing import Protocol

import msgspec

from penstock.edge.clock import Clock

# The fence is released immediately: only its token counts, which is larger than that of every leader before.
_FENCE_TTL_S = 1.0


class LeaderLease(msgspec.Struct, frozen=True):
    """A held lease."""

    name: str
    holder: str
    token: int
    expires_ms: int


class Lease(Protocol):
    """A lease that several nodes compete for, as one of them sees it; its methods raise Unavailable."""

    async def acquire(self, ttl_s: float) -> int | None:
        """Take the lease if it is free; return the fencing token, larger than all before, or None."""
        ...

    async def renew(self, token: int, ttl_s: float) -> bool:
        """Extend the lease to `ttl_s` from now; return False if it has expired or another node has it."""
        ...

    async def release(self, token: int) -> None:
        """Release the lease; do nothing if this node no longer has it."""


class LeaseTable(Protocol):
    """The part of the job repository that stores leases."""

    async def acquire_lease(self, name: str, holder: str, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        """Take a free lease."""
        ...

    async def renew_lease(self, lease: LeaderLease, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        """Extend a lease."""
        ...

    async def release_lease(self, lease: LeaderLease, now_ms: int) -> bool:
        """Release a lease."""
        ...


class LeaseDatabase(LeaseTable, Protocol):
    """A database that stores leases, opened and closed by its user."""

    async def open(self, now_ms: int) -> None:
        """Connect, and migrate the tables."""

    async def close(self) -> None:
        """Disconnect."""


class SqlLease:
    """A named lease in a database; the nodes' clocks must differ by much less than its duration."""

    def __init__(self, table: LeaseTable, clock: Clock, name: str, holder: str) -> None:
        self._table = table
        self._clock = clock
        self._name = name
        self._holder = holder

    async def acquire(self, ttl_s: float) -> int | None:
        """Take the lease if it is free; return the fencing token, or None."""
        lease = await self._table.acquire_lease(self._name, self._holder, self._clock.now_ms(), round(ttl_s * 1000))
        return None if lease is None else lease.token

    async def renew(self, token: int, ttl_s: float) -> bool:
        """Extend the lease to `ttl_s` from now."""
        renewed = await self._table.renew_lease(self._held(token), self._clock.now_ms(), round(ttl_s * 1000))
        return renewed is not None

    async def release(self, token: int) -> None:
        """Release the lease."""
        await self._table.release_lease(self._held(token), self._clock.now_ms())

    def _held(self, token: int) -> LeaderLease:
        return LeaderLease(self._name, self._holder, token, 0)


class FencedLease:
    """A lease whose holder also takes a token of the fence, so that the database rejects earlier leaders.

    While another node leads by the fence alone (`--standby sql` beside `--standby redis://…`), no node gets the lease.
    """

    def __init__(self, lease: Lease, fence: Lease) -> None:
        self._lease = lease
        self._fence = fence
        self._lease_tokens: dict[int, int] = {}

    async def acquire(self, ttl_s: float) -> int | None:
        """Take the lease if it is free; return the fence's token, or None."""
        lease_token = await self._lease.acquire(ttl_s)
        if lease_token is None:
            return None
        token = await self._fence.acquire(_FENCE_TTL_S)
        if token is None:
            await self._lease.release(lease_token)
            return None
        await self._fence.release(token)
        self._lease_tokens = {token: lease_token}
        return token

    async def renew(self, token: int, ttl_s: float) -> bool:
        """Extend the lease to `ttl_s` from now."""
        lease_token = self._lease_tokens.get(token)
        return lease_token is not None and await self._lease.renew(lease_token, ttl_s)

    async def release(self, token: int) -> None:
        """Release the lease."""
        lease_token = self._lease_tokens.pop(token, None)
        if lease_token is not None:
            await self._lease.release(lease_token)

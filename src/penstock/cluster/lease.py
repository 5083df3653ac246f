"""The leader's lease: the port, the lease in the database of events, and one kept elsewhere with a fencing token.

Every implementation passes tests/conformance/test_leader_lease.py.
"""

from typing import Protocol

import msgspec

from penstock.edge.clock import Clock


class LeaderLease(msgspec.Struct, frozen=True):
    """A lease that is held."""

    name: str
    holder: str
    token: int
    expires_ms: int


class Lease(Protocol):
    """One lease that several nodes contend for, as one of them sees it; Unavailable if it cannot be asked."""

    async def acquire(self, ttl_s: float) -> int | None:
        """Take the lease if nobody holds it; the fencing token, larger than all before, or None."""
        ...

    async def renew(self, token: int, ttl_s: float) -> bool:
        """Hold it for another `ttl_s` from now; False when it has run out or another has it."""
        ...

    async def release(self, token: int) -> None:
        """Let the next one have it at once; nothing happens if it is not ours any more."""


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


class LeaseDatabase(LeaseTable, Protocol):
    """A database that keeps leases, opened and closed by its user."""

    async def open(self, now_ms: int) -> None:
        """Connect, and bring the tables up to date."""

    async def close(self) -> None:
        """Hang up."""


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


# It is given back at once; what counts is that its token is larger than that of every leader before.
_MOMENT_S = 1.0


class FencedLease:
    """Who gets the lease takes a token from the fence too: from then on the database refuses earlier leaders.

    While another leads by the fence alone (`--standby sql` beside `--standby redis://…`), nobody gets the lease.
    """

    def __init__(self, lease: Lease, fence: Lease) -> None:
        self._lease = lease
        self._fence = fence
        self._lease_tokens: dict[int, int] = {}

    async def acquire(self, ttl_s: float) -> int | None:
        """Take the lease if nobody holds it; the fence's token, or None."""
        lease_token = await self._lease.acquire(ttl_s)
        if lease_token is None:
            return None
        token = await self._fence.acquire(_MOMENT_S)
        if token is None:
            await self._lease.release(lease_token)
            return None
        await self._fence.release(token)
        self._lease_tokens = {token: lease_token}
        return token

    async def renew(self, token: int, ttl_s: float) -> bool:
        """Hold it for another `ttl_s` from now."""
        lease_token = self._lease_tokens.get(token)
        return lease_token is not None and await self._lease.renew(lease_token, ttl_s)

    async def release(self, token: int) -> None:
        """Let the next one have it at once."""
        lease_token = self._lease_tokens.pop(token, None)
        if lease_token is not None:
            await self._lease.release(lease_token)

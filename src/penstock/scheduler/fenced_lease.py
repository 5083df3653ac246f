"""A lease kept elsewhere, with a fencing token of the database that the leader writes to."""

from penstock.scheduler.lease import Lease

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

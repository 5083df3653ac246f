"""The port to whoever keeps the leader's lease: a database or Redis.

Every implementation passes tests/conformance/test_leader_lease.py.
"""

from typing import Protocol


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

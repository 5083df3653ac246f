"""The leader's lease: who may run the scheduler, with a token that grows with every change of leader.

What only a leader may do carries its token; a leader that another has followed is refused (fencing).
"""

import msgspec

from penstock.cluster import LeaderLease, StaleLeader
from penstock.events.store.database import RepositoryPart, Transaction, writes

SCHEDULER = "scheduler"
"""The lease whose token guards claims, marks and recovery."""


class LeaderLeases(RepositoryPart):
    """Leases, by name."""

    @writes
    def acquire_lease(self, tx: Transaction, name: str, holder: str, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        """Take a free lease, with the next token; None while it is held."""
        expires_ms = now_ms + ttl_ms
        row = tx.first("acquire_lease", name=name, holder=holder, now_ms=now_ms, expires_ms=expires_ms)
        return None if row is None else LeaderLease(name, holder, row[0], expires_ms)

    @writes
    def renew_lease(self, tx: Transaction, lease: LeaderLease, now_ms: int, ttl_ms: int) -> LeaderLease | None:
        """Extend a lease; None when it has expired or another holds it."""
        renewed = msgspec.structs.replace(lease, expires_ms=now_ms + ttl_ms)
        return renewed if tx.first("renew_lease", now_ms=now_ms, **msgspec.structs.asdict(renewed)) else None

    @writes
    def release_lease(self, tx: Transaction, lease: LeaderLease, now_ms: int) -> bool:
        """Free a lease for the next holder; False when it was not held any more."""
        values = {"name": lease.name, "holder": lease.holder, "token": lease.token, "now_ms": now_ms}
        return tx.first("release_lease", **values) is not None


def check_leader(tx: Transaction, token: int | None) -> None:
    """Refuse a leader that another has followed; without a token there is only one scheduler."""
    if token is None:
        return
    row = tx.first("leader_token", name=SCHEDULER)
    if row is not None and row[0] > token:
        raise StaleLeader(token, row[0])

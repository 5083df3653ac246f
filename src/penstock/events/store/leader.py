"""The leader's lease: who may run the scheduler, with a token that grows with every change of hands.

What only a leader may do carries its token; one that was followed by another is refused (fencing).
"""

import msgspec

from penstock.cluster import LeaderLease, StaleLeader
from penstock.events.store.transaction import Transaction

SCHEDULER = "scheduler"
"""The lease whose token guards claims, marks and recovery."""


def acquire(tx: Transaction, name: str, holder: str, now_ms: int, ttl_ms: int) -> LeaderLease | None:
    """Take a lease that nobody holds, with the next token; None while somebody does."""
    expires_ms = now_ms + ttl_ms
    row = tx.first("acquire_lease", name=name, holder=holder, now_ms=now_ms, expires_ms=expires_ms)
    return None if row is None else LeaderLease(name, holder, row[0], expires_ms)


def renew(tx: Transaction, lease: LeaderLease, now_ms: int, ttl_ms: int) -> LeaderLease | None:
    """Hold a lease for longer; None when it has run out or another has it."""
    renewed = msgspec.structs.replace(lease, expires_ms=now_ms + ttl_ms)
    return renewed if tx.first("renew_lease", now_ms=now_ms, **msgspec.structs.asdict(renewed)) else None


def give_up(tx: Transaction, lease: LeaderLease, now_ms: int) -> bool:
    """Let the next one have it at once; False when it was not held any more."""
    values = {"name": lease.name, "holder": lease.holder, "token": lease.token, "now_ms": now_ms}
    return tx.first("release_lease", **values) is not None


def check_leader(tx: Transaction, token: int | None) -> None:
    """Refuse a leader that was followed by another; without a token there is only one scheduler."""
    if token is None:
        return
    row = tx.first("leader_token", name=SCHEDULER)
    if row is not None and row[0] > token:
        raise StaleLeader(token, row[0])

"""How long the oldest has waited, whichever engine runs: asked of the database, as that is where jobs wait."""

import msgspec

from penstock.jobs.transaction import Transaction

_MOST_LOOKED_AT = 200


class OldestWaiting(msgspec.Struct, frozen=True):
    """Since when the oldest of its kind waits, in milliseconds since the Unix epoch; None if there is none."""

    since_ms: int | None = None
    """Of what only waits for its turn: events to become jobs, due jobs to be delivered."""
    held_since_ms: int | None = None
    """Of due jobs that something holds: an earlier one of their group, or a pause of their subscription."""


def oldest_waiting(tx: Transaction, now_ms: int) -> OldestWaiting:
    """Since when the oldest waits."""
    found = {bool(held): since_ms for held, since_ms in tx.all("oldest_waiting", now_ms=now_ms, most=_MOST_LOOKED_AT)}
    return OldestWaiting(found.get(False), found.get(True))

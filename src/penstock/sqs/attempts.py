"""Receive attempts of FIFO queues: the same attempt id within five minutes gets the same messages again."""

import msgspec

from penstock.domain.limits import MINUTE_MS
from penstock.engine.dedup import DedupWindow
from penstock.engine.entry import Entry, EntryState
from penstock.sqs.partition import Delivery

WINDOW_MS = 5 * MINUTE_MS


class _Lease(msgspec.Struct, frozen=True):
    entry: Entry
    lease_id: int
    deadline_ms: int

    def untouched(self) -> bool:
        entry = self.entry
        return (
            entry.state is EntryState.LEASED
            and entry.lease_id == self.lease_id
            and entry.deadline_ms == self.deadline_ms
        )


class _Handed(msgspec.Struct, frozen=True):
    deliveries: list[Delivery]
    leases: list[_Lease]


class ReceiveAttempts:
    """What each attempt id was answered with, while nothing of it was deleted, changed or has run out."""

    def __init__(self) -> None:
        self._attempts: DedupWindow[_Handed] = DedupWindow(WINDOW_MS)

    def repeat(self, attempt_id: str, lease_ms: int, now_ms: int) -> list[Delivery] | None:
        """The deliveries of an earlier attempt with fresh deadlines; None when there is no such attempt to repeat."""
        handed = self._attempts.find(attempt_id, now_ms)
        if handed is None or not all(lease.untouched() and lease.deadline_ms > now_ms for lease in handed.leases):
            return None
        for delivery in handed.deliveries:
            partition = delivery.partition
            for entry in delivery.entries:
                partition.shell.ledger.set_deadline(partition.queue, entry.lease_id, now_ms + lease_ms, now_ms)
        self.remember(attempt_id, handed.deliveries, now_ms)
        return handed.deliveries

    def remember(self, attempt_id: str, deliveries: list[Delivery], now_ms: int) -> None:
        """Answer the same attempt id with these deliveries."""
        entries = (entry for delivery in deliveries for entry in delivery.entries)
        leases = [_Lease(entry, entry.lease_id, entry.deadline_ms) for entry in entries]
        self._attempts.remember(attempt_id, _Handed(deliveries, leases), now_ms)

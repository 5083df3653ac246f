"""Receive attempts of FIFO queues: the same attempt id within five minutes gets the same messages again."""

import msgspec

from penstock.core.dedup import DedupWindow
from penstock.core.limits import MINUTE_MS
from penstock.queue.entry import EntryState
from penstock.sqs.partition import Delivery

WINDOW_MS = 5 * MINUTE_MS


class _Handed(msgspec.Struct, frozen=True):
    delivery: Delivery
    lease_id: int
    deadline_ms: int

    def untouched(self) -> bool:
        entry = self.delivery.entry
        return (
            entry.state is EntryState.LEASED
            and entry.lease_id == self.lease_id
            and entry.deadline_ms == self.deadline_ms
        )


class ReceiveAttempts:
    """What each attempt id was answered with, while nothing of it was deleted, changed or has run out."""

    def __init__(self) -> None:
        self._attempts: DedupWindow[list[_Handed]] = DedupWindow(WINDOW_MS)

    def repeat(self, attempt_id: str, lease_ms: int, now_ms: int) -> list[Delivery] | None:
        """The deliveries of an earlier attempt with fresh deadlines; None when there is no such attempt to repeat."""
        handed = self._attempts.find(attempt_id, now_ms)
        if handed is None or not all(one.untouched() and one.deadline_ms > now_ms for one in handed):
            return None
        for one in handed:
            partition, entry = one.delivery.partition, one.delivery.entry
            partition.shell.ledger.set_deadline(partition.queue, entry.lease_id, now_ms + lease_ms, now_ms)
        deliveries = [one.delivery for one in handed]
        self.remember(attempt_id, deliveries, now_ms)
        return deliveries

    def remember(self, attempt_id: str, deliveries: list[Delivery], now_ms: int) -> None:
        """Answer the same attempt id with these deliveries."""
        handed = [_Handed(one, one.entry.lease_id, one.entry.deadline_ms) for one in deliveries]
        self._attempts.remember(attempt_id, handed, now_ms)

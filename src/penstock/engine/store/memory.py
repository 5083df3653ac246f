"""The store that saves nothing: queues exist only in memory."""

from penstock.engine.store.port import (
    DamagedRow,
    DedupRow,
    DeliveryRow,
    QueueRecord,
    Shares,
    StoredSegment,
    StoreTotals,
    StreamRecord,
    WriteBatch,
)


class MemoryStore:
    """Returns nothing, because the ledger of a store that is not durable keeps everything itself."""

    durable = False
    local = True
    lost = None
    epoch = 0
    flush = None
    disk_space = None

    def open(self) -> tuple[list[StreamRecord], list[QueueRecord]]:
        """Return an empty catalog."""
        return [], []

    def apply(self, batch: WriteBatch) -> Shares:
        """Discard a batch."""
        return {}

    def require_owned(self) -> None:
        """Do nothing: the store belongs to this process until it ends."""

    def totals(self, queue_id: int) -> StoreTotals:
        """Return zero."""
        return StoreTotals(0, 0)

    def read(self, queue_id: int, from_seq: int, max_messages: int, max_bytes: int) -> list[StoredSegment]:
        """Return nothing."""
        return []

    def deliveries(self, queue_id: int, first_seq: int, last_seq: int) -> list[DeliveryRow]:
        """Return nothing."""
        return []

    def last_leases(self, now_ms: int) -> dict[int, int]:
        """Return nothing."""
        return {}

    def dedups(self, now_ms: int) -> list[DedupRow]:
        """Return nothing."""
        return []

    def shares(self) -> Shares:
        """Return nothing."""
        return {}

    def damaged(self) -> list[DamagedRow]:
        """Return nothing."""
        return []

    def close(self) -> None:
        """Do nothing."""

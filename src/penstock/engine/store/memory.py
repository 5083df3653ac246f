"""The store that keeps nothing: queues live in memory only."""

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
    """Gives back nothing, because the ledger of a store that is not durable keeps everything itself."""

    durable = False
    local = True
    flush = None
    disk_space = None

    def open(self) -> tuple[list[StreamRecord], list[QueueRecord]]:
        """An empty catalog."""
        return [], []

    def apply(self, batch: WriteBatch) -> Shares:
        """Nothing to keep."""
        return {}

    def totals(self, queue_id: int) -> StoreTotals:
        """Nothing is left here."""
        return StoreTotals(0, 0)

    def read(self, queue_id: int, from_seq: int, max_messages: int, max_bytes: int) -> list[StoredSegment]:
        """Nothing to read."""
        return []

    def deliveries(self, queue_id: int, first_seq: int, last_seq: int) -> list[DeliveryRow]:
        """Nothing to read."""
        return []

    def dedups(self, now_ms: int) -> list[DedupRow]:
        """Nothing to read."""
        return []

    def shares(self) -> Shares:
        """Nothing to read."""
        return {}

    def damaged(self) -> list[DamagedRow]:
        """Nothing to read."""
        return []

    def close(self) -> None:
        """Nothing to release."""

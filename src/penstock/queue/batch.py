"""What one hand-out takes from a queue."""

from penstock.queue.entry import Entry
from penstock.queue.policy import DeadLetterAt, QueuePolicy


class Batch:
    """What one hand-out has taken so far and what it still has room for."""

    __slots__ = (
        "bytes_room",
        "entries",
        "first_always",
        "flow_bytes",
        "horizon_ms",
        "leases",
        "max_deliveries",
        "room",
    )

    def __init__(
        self,
        policy: QueuePolicy,
        now_ms: int,
        room: int,
        bytes_room: int | None,
        flow_bytes: int | None,
        *,
        leases: bool,
        first_always: bool = True,
    ) -> None:
        self.horizon_ms = now_ms - policy.retention_ms
        """Messages sent by then are past their retention."""
        self.max_deliveries = policy.delivery_limit(DeadLetterAt.RECEIVE)
        self.room = room
        self.bytes_room = bytes_room
        self.flow_bytes = flow_bytes
        self.leases = leases
        """Whether what is taken will be leased; otherwise it leaves the queue."""
        self.first_always = first_always
        self.entries: list[Entry] = []

    def fits(self, size_bytes: int, leased: int) -> bool:
        """Whether a message fits; charges it. One that is larger than a limit goes when it goes alone."""
        if self.bytes_room is not None:
            if size_bytes > self.bytes_room and (self.entries or not self.first_always):
                return False
            self.bytes_room -= size_bytes
        if self.flow_bytes is not None:
            if size_bytes > self.flow_bytes and (leased or self.entries):
                return False
            self.flow_bytes -= size_bytes
        return True

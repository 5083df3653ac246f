"""What one hand-out takes from a queue."""

from sys import maxsize

from penstock.queue.entry import Entry
from penstock.queue.policy import DeadLetterAt, QueuePolicy


class Batch:
    """What one hand-out has taken so far and what it still has room for."""

    __slots__ = (
        "_bytes_room",
        "_first_always",
        "_flow_bytes",
        "entries",
        "horizon_ms",
        "leases",
        "max_deliveries",
        "room",
        "size_bytes",
        "sure_bytes",
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
        limit = policy.delivery_limit(DeadLetterAt.RECEIVE)
        self.max_deliveries = maxsize if limit is None else limit
        self.room = room
        self._bytes_room = maxsize if bytes_room is None else bytes_room
        self._flow_bytes = maxsize if flow_bytes is None else flow_bytes
        self.sure_bytes = min(self._bytes_room, self._flow_bytes)
        """Up to here no limit has to be looked at."""
        self.size_bytes = 0
        self.leases = leases
        """Whether what is taken will be leased; otherwise it leaves the queue."""
        self._first_always = first_always
        self.entries: list[Entry] = []

    def may_reach(self, size_bytes: int, leased: int) -> bool:
        """Whether the next message may make it so large; one that is larger than a limit goes when it goes alone."""
        if size_bytes > self._bytes_room and (self.entries or not self._first_always):
            return False
        return size_bytes <= self._flow_bytes or not (leased or self.entries)

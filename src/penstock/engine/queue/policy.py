"""The settings of a queue: grouping, leases, limits. A frozen value; a new one takes effect on the next operation."""

from enum import Enum

import msgspec

from penstock.domain.limits import DEFAULT_RETENTION_S, LOOKAHEAD_MESSAGES, SECOND_MS, WINDOW_BYTES, WINDOW_MESSAGES
from penstock.domain.retry import RetryPolicy


class Grouping(Enum):
    """What a message's group means to a queue."""

    NONE = "none"
    """Groups have no effect."""
    BATCH = "batch"
    """One receive may lease several messages of a group, in order; the group waits until all of them are settled."""
    ONE = "one"
    """One message of a group is leased at a time."""


class DeadLetterAt(Enum):
    """When a message without deliveries left leaves the queue."""

    RELEASE = "release"
    """As soon as its last delivery fails."""
    RECEIVE = "receive"
    """When the next receive would have returned it."""


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one queue."""

    grouping: Grouping = Grouping.NONE
    lease_ms: int = 30 * SECOND_MS
    retention_ms: int = DEFAULT_RETENTION_S * SECOND_MS
    retry: RetryPolicy | None = None
    max_deliveries: int | None = None
    dead_letter_at: DeadLetterAt = DeadLetterAt.RELEASE
    max_in_flight: int | None = None
    max_in_flight_bytes: int | None = None
    late_ack: bool = False
    """Whether any lease that a message ever had can settle it while it exists."""
    keep_leases: bool = False
    """Whether leases continue after a planned restart."""

    def delivery_limit(self, moment: DeadLetterAt) -> int | None:
        """Return the number of deliveries after which a message leaves the queue at this moment, if it does."""
        return self.max_deliveries if self.dead_letter_at is moment else None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a queue is in memory; the rest of a deep backlog stays in the store."""

    messages: int = WINDOW_MESSAGES
    size_bytes: int = WINDOW_BYTES
    lookahead: int = LOOKAHEAD_MESSAGES
    """How many messages may be in memory while all those within the window belong to blocked groups."""

"""The in-flight tracker: which messages are between hand-out and settlement, by broker id and by message id.

A message on its way through the router, from its hand-out to its settlement.
"""

from collections.abc import Iterator
from enum import IntEnum
from math import ceil
from typing import Protocol, TypeAlias

from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import FAST_FAIL_DELAY_S
from penstock.domain.pointer import DispatchMode, MessagePointer
from penstock.queues import Received, Source


class Stage(IntEnum):
    """Where a message is."""

    WAITING = 0
    DELIVERING = 1
    BACKING_OFF = 2
    SETTLING = 3


class BatchGroup:
    """The messages of one group in one batch: when one fails, the later ones go back too (ROUTER-BATCH-1)."""

    __slots__ = ("failed_until_ms",)

    def __init__(self) -> None:
        # When the message that failed can be seen again; None while none has failed.
        self.failed_until_ms: int | None = None

    def fail(self, delay_s: int, now_ms: int) -> None:
        """A message failed and goes back for so long."""
        self.failed_until_ms = now_ms + delay_s * SECOND_MS

    def blocks(self, pointer: MessagePointer) -> bool:
        """Whether a later message of the batch may not go now."""
        return self.failed_until_ms is not None and pointer.dispatch_mode is DispatchMode.BLOCK_ON_ERROR

    def delay_s(self, now_ms: int, *, ordered: bool) -> int:
        """How long such a message goes back for."""
        if ordered or self.failed_until_ms is None:
            return FAST_FAIL_DELAY_S
        # The queue does not hold the later message back, so it must not be seen before the failed one (ROUTER-BATCH-3).
        return max(FAST_FAIL_DELAY_S, ceil((self.failed_until_ms - now_ms) / SECOND_MS) + 1)


class Settles(Protocol):
    """Where a message is settled."""

    def ack(self, message: "TrackedMessage") -> None:
        """Remove the message for good."""

    def nack(self, message: "TrackedMessage", delay_s: int) -> None:
        """Give the message back, to come again after the delay."""


class Holds(Protocol):
    """The pool a message is in: that of its code, or the default pool."""

    code: str


class MessageOrigin(Protocol):
    """The consumer a message came through."""

    name: str

    @property
    def source(self) -> Source:
        """Where it was handed out."""
        ...

    @property
    def settlements(self) -> Settles:
        """Where it is settled."""
        ...

    def forget(self, message: "TrackedMessage") -> None:
        """The message's lease is needed no longer."""


class TrackedMessage:
    """One message. Lanes chain messages by `next`, which costs less than a container per group."""

    __slots__ = (
        "attempt",
        "batch_group",
        "beat",
        "group",
        "next",
        "origin",
        "pointer",
        "pool",
        "received",
        "reissued",
        "stage",
        "tracked_s",
    )

    def __init__(
        self,
        pointer: MessagePointer,
        received: Received,
        origin: MessageOrigin,
        pool: Holds,
        batch_group: BatchGroup,
        tracked_s: float,
    ) -> None:
        self.pointer = pointer
        self.group = pointer.group
        self.received = received
        self.origin = origin
        self.pool = pool
        self.batch_group = batch_group
        # On the loop's clock, which only serves to take differences.
        self.tracked_s = tracked_s
        self.stage = Stage.WAITING
        self.attempt = 1
        self.next: TrackedMessage | None = None
        # The heartbeat's round in which the lease is extended next.
        self.beat: Round | None = None
        # Handed out once more while it is being settled: the newer handle has to be settled too.
        self.reissued = False

    @property
    def is_held(self) -> bool:
        """Whether it waits here for its first or its next attempt."""
        return self.stage is Stage.WAITING or self.stage is Stage.BACKING_OFF


# Messages whose leases are extended at the same time.
Round: TypeAlias = dict[TrackedMessage, None]


class InFlightTracker:
    """Two indexes that always agree. A broker id counts within its queue, a message id everywhere."""

    def __init__(self) -> None:
        self._of_queue: dict[str, dict[str, TrackedMessage]] = {}
        self._by_message_id: dict[str, TrackedMessage] = {}

    def __len__(self) -> int:
        return len(self._by_message_id)

    def __iter__(self) -> Iterator[TrackedMessage]:
        return iter(list(self._by_message_id.values()))

    def of_broker_id(self, queue: str, broker_id: str) -> TrackedMessage | None:
        """The message that this hand-out repeats, if it is still on its way."""
        messages = self._of_queue.get(queue)
        return messages.get(broker_id) if messages else None

    def of_message_id(self, message_id: str) -> TrackedMessage | None:
        """The message with the application's id."""
        return self._by_message_id.get(message_id)

    def in_queue(self, queue: str) -> int:
        """How many messages of a queue are on their way."""
        return len(self._of_queue.get(queue, ()))

    def track(self, message: TrackedMessage) -> None:
        """Add a message that neither index knows."""
        messages = self._of_queue.setdefault(message.origin.name, {})
        broker_id = message.received.broker_id
        message_id = message.pointer.id
        assert broker_id not in messages
        assert message_id not in self._by_message_id
        messages[broker_id] = message
        self._by_message_id[message_id] = message

    def remove(self, message: TrackedMessage) -> None:
        """Forget a message that was tracked."""
        queue = message.origin.name
        messages = self._of_queue[queue]
        del messages[message.received.broker_id]
        del self._by_message_id[message.pointer.id]
        if not messages:
            del self._of_queue[queue]

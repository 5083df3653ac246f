"""The in-flight tracker: the messages between receipt and settlement, by broker id and by message id."""

import logging
from collections.abc import Iterator
from enum import IntEnum
from math import ceil, inf
from typing import Protocol, TypeAlias

from penstock.domain.limits import SECOND_MS
from penstock.domain.outcome import FAST_FAIL_DELAY_S
from penstock.domain.pointer import DispatchMode, MessagePointer
from penstock.queues import Received, Source

_log = logging.getLogger(__name__)


class Stage(IntEnum):
    """The stage of a message in the router."""

    WAITING = 0
    DELIVERING = 1
    BACKING_OFF = 2
    SETTLING = 3


class BatchGroup:
    """The messages of one group in one batch: when one fails, the later ones are nacked too (ROUTER-BATCH-1)."""

    __slots__ = ("_batch", "_group", "_left", "failed_until_ms")

    def __init__(self, batch: str = "", group: str = "") -> None:
        self._batch = batch
        self._group = group
        self._left = 0
        # When the failed message becomes visible again; None while none has failed.
        self.failed_until_ms: int | None = None

    def __str__(self) -> str:
        return f"{self._batch}|{self._group}"

    @property
    def has_failed(self) -> bool:
        """Whether a message of it has failed."""
        return self.failed_until_ms is not None

    def join(self, message_id: str) -> None:
        """Count a message that is tracked."""
        self._left += 1
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("message %s joins batch and group %s, which has %d", message_id, self, self._left)

    def leave(self, message_id: str) -> None:
        """Count a message that is not tracked any more."""
        self._left -= 1
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("message %s leaves batch and group %s, which has %d", message_id, self, self._left)
            if not self._left:
                _log.debug("batch and group %s is finished", self)

    def fail(self, delay_s: int, now_ms: int) -> None:
        """Record that a message failed and was nacked with a delay."""
        self.failed_until_ms = now_ms + delay_s * SECOND_MS

    def fail_with(self, other: "BatchGroup") -> None:
        """Record that messages were nacked because one of another batch failed."""
        self.failed_until_ms = other.failed_until_ms

    def blocks(self, pointer: MessagePointer) -> bool:
        """Return whether a later message of the batch must not be delivered now."""
        return self.failed_until_ms is not None and pointer.dispatch_mode is DispatchMode.BLOCK_ON_ERROR

    def delay_s(self, now_ms: int, *, ordered: bool) -> int:
        """Return the delay of the nack of a blocked message."""
        if ordered or self.failed_until_ms is None:
            return FAST_FAIL_DELAY_S
        # An unordered queue must not redeliver the later message before the failed one (ROUTER-BATCH-3).
        return max(FAST_FAIL_DELAY_S, ceil((self.failed_until_ms - now_ms) / SECOND_MS) + 1)


class Settler(Protocol):
    """Settles messages."""

    def ack(self, message: "TrackedMessage") -> None:
        """Remove the message for good."""

    def nack(self, message: "TrackedMessage", delay_s: int) -> None:
        """Return the message to its queue, to be redelivered after the delay."""

    def abandon(self, message: "TrackedMessage") -> None:
        """Forget the message, as its lease has ended and its queue redelivers it."""


class AssignedPool(Protocol):
    """The pool of a message: the one it names, or the default pool."""

    code: str


class MessageOrigin(Protocol):
    """The consumer that received a message."""

    name: str

    @property
    def source(self) -> Source:
        """The queue's source."""
        ...

    @property
    def settlements(self) -> Settler:
        """The settlements of the consumer's messages."""
        ...

    def release_lease(self, message: "TrackedMessage") -> None:
        """Stop extending the lease of a message."""


class TrackedMessage:
    """A message in the router. Lanes link messages by `next`, which costs less than a container per group."""

    __slots__ = (
        "attempt",
        "backed_off_s",
        "batch_group",
        "delivered_s",
        "group",
        "lease_round",
        "leased_until_s",
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
        pool: AssignedPool,
        batch_group: BatchGroup,
        tracked_s: float,
    ) -> None:
        self.pointer = pointer
        self.group = pointer.group
        self.received = received
        self.origin = origin
        self.pool = pool
        self.batch_group = batch_group
        # On the event loop's clock, so only differences have a meaning.
        self.tracked_s = tracked_s
        self.stage = Stage.WAITING
        self.attempt = 1
        # How long its ended attempts took, and how long it waited between them on purpose.
        self.delivered_s = 0.0
        self.backed_off_s = 0
        self.next: TrackedMessage | None = None
        # When its lease may have ended, on the event loop's clock; from then on another router may have it.
        self.leased_until_s = inf
        # The round in which the heartbeat next extends the lease.
        self.lease_round: Round | None = None
        # Redelivered while being settled: the newer handle must be settled too.
        self.reissued = False

    @property
    def is_held(self) -> bool:
        """Whether it waits for its first or its next attempt."""
        return self.stage is Stage.WAITING or self.stage is Stage.BACKING_OFF

    def is_blocked_by(self, failed: "TrackedMessage") -> bool:
        """Return whether it must not overtake a failed message of its lane (ROUTER-BATCH-1, ROUTER-BATCH-2).

        From a queue that keeps order, whatever batch it came in: after a lapsed lease old and new messages meet here.
        """
        same_batch = self.batch_group is failed.batch_group
        return failed.batch_group.blocks(self.pointer) and (same_batch or self.received.ordered)


# Messages whose leases are extended at the same time.
Round: TypeAlias = dict[TrackedMessage, None]


class InFlightTracker:
    """Two indexes that always agree. A broker id is unique within its queue, a message id in the router."""

    def __init__(self) -> None:
        self._of_queue: dict[str, dict[str, TrackedMessage]] = {}
        self._by_message_id: dict[str, TrackedMessage] = {}

    def __len__(self) -> int:
        return len(self._by_message_id)

    def __iter__(self) -> Iterator[TrackedMessage]:
        return iter(list(self._by_message_id.values()))

    def of_broker_id(self, queue: str, broker_id: str) -> TrackedMessage | None:
        """Return the message in flight with a broker's id."""
        messages = self._of_queue.get(queue)
        return messages.get(broker_id) if messages else None

    def of_message_id(self, message_id: str) -> TrackedMessage | None:
        """Return the message in flight with an application's id."""
        return self._by_message_id.get(message_id)

    def in_queue(self, queue: str) -> int:
        """Return the number of messages of a queue in flight."""
        return len(self._of_queue.get(queue, ()))

    def track(self, message: TrackedMessage) -> None:
        """Add a message that is in neither index."""
        messages = self._of_queue.setdefault(message.origin.name, {})
        broker_id = message.received.broker_id
        message_id = message.pointer.id
        assert broker_id not in messages
        assert message_id not in self._by_message_id
        message.batch_group.join(message_id)
        messages[broker_id] = message
        self._by_message_id[message_id] = message

    def remove(self, message: TrackedMessage) -> None:
        """Remove a tracked message."""
        queue = message.origin.name
        messages = self._of_queue[queue]
        del messages[message.received.broker_id]
        del self._by_message_id[message.pointer.id]
        message.batch_group.leave(message.pointer.id)
        if not messages:
            del self._of_queue[queue]

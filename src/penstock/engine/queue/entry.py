"""A message in one queue, with its state, lease and delivery count; and the limits of one batch of deliveries."""

from collections.abc import Iterable
from enum import IntEnum
from sys import maxsize

import msgspec

from penstock.domain.message import Message
from penstock.engine.queue.policy import DeadLetterAt, QueuePolicy


class EntryState(IntEnum):
    """The state of an entry; TRANSITIONS lists the moves."""

    DELAYED = 0
    WAITING = 1
    LEASED = 2
    SETTLING = 3
    GONE = 4


# Module constants: looking up an enum member costs more than the comparison on the hot path.
DELAYED = EntryState.DELAYED
WAITING = EntryState.WAITING
LEASED = EntryState.LEASED
SETTLING = EntryState.SETTLING
GONE = EntryState.GONE


TRANSITIONS: frozenset[tuple[EntryState, EntryState]] = frozenset(
    {
        (DELAYED, WAITING),  # its delay has passed
        (WAITING, LEASED),  # received
        (LEASED, WAITING),  # released, or its lease expired
        (LEASED, DELAYED),  # released with a delay or back-off
        (LEASED, SETTLING),  # acknowledged, or out of deliveries
        (WAITING, SETTLING),  # moved to another queue, past its retention, or acknowledged late
        (DELAYED, SETTLING),
        (SETTLING, LEASED),  # the store refused: the lease is restored
        (SETTLING, WAITING),  # the store refused: it waits again
        (SETTLING, GONE),  # durable, or purged
        (WAITING, GONE),  # purged
        (DELAYED, GONE),
        (LEASED, GONE),
    }
)


class Segment(msgspec.Struct, frozen=True, gc=False):
    """Messages that were made durable together; acknowledgements are recorded against it."""

    first_seq: int
    count: int
    size_bytes: int


class Entry(msgspec.Struct, gc=False):
    """One message in one queue; `seq` is its position in its stream."""

    seq: int
    message: Message
    segment: Segment | None = None
    available_ms: int = 0
    receive_count: int = 0
    first_received_ms: int = 0
    lease_id: int = 0
    leased_ms: int = 0
    deadline_ms: int = 0
    state: EntryState = WAITING


def total_bytes(messages: Iterable[Message]) -> int:
    """Return the size of all messages."""
    size_bytes = 0
    for message in messages:
        size_bytes += message.size_bytes
    return size_bytes


def held_bytes(entries: Iterable[Entry]) -> int:
    """Return the size of the messages of all entries."""
    size_bytes = 0
    for entry in entries:
        size_bytes += entry.message.size_bytes
    return size_bytes


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Message counts and bytes of one queue; `in_store` counts those beyond the window in memory."""

    visible: int
    leased: int
    delayed: int
    settling: int
    total_bytes: int
    leased_bytes: int
    in_store: int = 0

    @property
    def total(self) -> int:
        """All messages the queue is responsible for."""
        return self.visible + self.leased + self.delayed + self.settling + self.in_store

    def beyond_window(self, messages: int, size_bytes: int) -> "Counters":
        """Return these counters plus the messages that are only in the store."""
        return msgspec.structs.replace(self, in_store=messages, total_bytes=self.total_bytes + size_bytes)


class Batch:
    """The messages taken by one receive, and the limits for taking more."""

    __slots__ = (
        "_first_always",
        "_flow_bytes",
        "_max_bytes",
        "entries",
        "horizon_ms",
        "leases",
        "max_deliveries",
        "max_messages",
        "size_bytes",
        "sure_bytes",
    )

    def __init__(
        self,
        policy: QueuePolicy,
        now_ms: int,
        max_messages: int,
        max_bytes: int | None,
        flow_bytes: int | None,
        *,
        leases: bool,
        first_always: bool = True,
    ) -> None:
        self.horizon_ms = now_ms - policy.retention_ms
        """Messages sent at or before this time are past their retention."""
        limit = policy.delivery_limit(DeadLetterAt.RECEIVE)
        self.max_deliveries = maxsize if limit is None else limit
        self.max_messages = max_messages
        self._max_bytes = maxsize if max_bytes is None else max_bytes
        self._flow_bytes = maxsize if flow_bytes is None else flow_bytes
        self.sure_bytes = min(self._max_bytes, self._flow_bytes)
        """Below this size no limit needs to be checked."""
        self.size_bytes = 0
        self.leases = leases
        """Whether the messages will be leased; otherwise they leave the queue."""
        self._first_always = first_always
        self.entries: list[Entry] = []

    def may_reach(self, size_bytes: int, leased: int) -> bool:
        """Return whether the batch may grow to this size; a message larger than a limit may go alone."""
        if size_bytes > self._max_bytes and (self.entries or not self._first_always):
            return False
        return size_bytes <= self._flow_bytes or not (leased or self.entries)

"""A message's place in one queue: where it waits, who holds it, how often it was handed out.

What a queue holds, by state.

What one hand-out takes from a queue.
"""

from collections.abc import Iterable
from enum import IntEnum
from sys import maxsize

import msgspec

from penstock.domain.message import Message
from penstock.engine.policy import DeadLetterAt, QueuePolicy


class EntryState(IntEnum):
    """Where an entry is in its life; TRANSITIONS lists the moves."""

    DELAYED = 0
    WAITING = 1
    LEASED = 2
    SETTLING = 3
    GONE = 4


# Module constants: an enum member lookup costs more than the comparison it serves on the hot path.
DELAYED = EntryState.DELAYED
WAITING = EntryState.WAITING
LEASED = EntryState.LEASED
SETTLING = EntryState.SETTLING
GONE = EntryState.GONE


TRANSITIONS: frozenset[tuple[EntryState, EntryState]] = frozenset(
    {
        (DELAYED, WAITING),  # its time has come
        (WAITING, LEASED),  # received
        (LEASED, WAITING),  # released, or its lease ran out
        (LEASED, DELAYED),  # released with a delay or back-off
        (LEASED, SETTLING),  # acknowledged, or out of deliveries
        (WAITING, SETTLING),  # moved to another queue, past its retention, or acknowledged late
        (DELAYED, SETTLING),
        (SETTLING, LEASED),  # the store refused: the lease is restored
        (SETTLING, WAITING),  # the store refused: back in line
        (SETTLING, GONE),  # the store has it, or purged
        (WAITING, GONE),  # purged
        (DELAYED, GONE),
        (LEASED, GONE),
    }
)


class Segment(msgspec.Struct, frozen=True, gc=False):
    """A run of messages that were made durable together; acknowledgements are recorded against it."""

    first_seq: int
    count: int
    size_bytes: int


class Entry(msgspec.Struct, gc=False):
    """One message in one queue; `seq` is its place in the order of its stream."""

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
    """How large messages are together."""
    size_bytes = 0
    for message in messages:
        size_bytes += message.size_bytes
    return size_bytes


def held_bytes(entries: Iterable[Entry]) -> int:
    """How large the messages of entries are together."""
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
        """Every message the queue is responsible for."""
        return self.visible + self.leased + self.delayed + self.settling + self.in_store

    def beyond_window(self, messages: int, size_bytes: int) -> "Counters":
        """With the messages that are in the store only."""
        return msgspec.structs.replace(self, in_store=messages, total_bytes=self.total_bytes + size_bytes)


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

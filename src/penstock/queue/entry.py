"""A message's place in one queue: where it waits, who holds it, how often it was handed out."""

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from penstock.core.message import Message


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

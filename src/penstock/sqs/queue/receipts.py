"""Receipt handles: opaque to clients, and bound to one delivery of one message of one queue.

    version u8 | partition u8 | incarnation u64 | sequence u64 | lease u64 | epoch u32

The incarnation is the queue's identity (a queue deleted and made anew has another), the epoch that of the server
process, whose leases end with it.

A partition of a queue, and what is handed out from it.

Receive attempts of FIFO queues: the same attempt id within five minutes gets the same messages again.
"""

import struct

import msgspec

from penstock.domain.limits import MINUTE_MS
from penstock.engine import AsyncShell, DedupWindow, Entry, EntryState, StoredQueue, Stream
from penstock.sqs.errors import receipt_handle_is_invalid

_VERSION = 1
_LAYOUT = struct.Struct(">BBQQQI")
_TEXT_LENGTH = 2 * _LAYOUT.size
_pack, _unpack = _LAYOUT.pack, _LAYOUT.unpack
_from_hex = bytes.fromhex


class ReceiptHandle(msgspec.Struct, frozen=True, gc=False):
    """What a handle carries."""

    version: int
    partition: int
    incarnation: int
    seq: int
    lease_id: int
    epoch: int


def encode_handle(partition: int, incarnation: int, seq: int, lease_id: int, epoch: int) -> str:
    """The handle as clients see it."""
    return _pack(_VERSION, partition, incarnation, seq, lease_id, epoch).hex()


def decode_handle(text: str) -> ReceiptHandle:
    """What a handle carries; ReceiptHandleIsInvalid when it is none of ours."""
    try:
        handle = ReceiptHandle(*_unpack(_from_hex(text)))
    except (ValueError, struct.error):
        raise receipt_handle_is_invalid() from None
    if handle.version != _VERSION or len(text) != _TEXT_LENGTH:
        raise receipt_handle_is_invalid()
    return handle


class QueuePartition(msgspec.Struct, frozen=True):
    """A part of a queue with its own order, deduplication and writer."""

    index: int
    shell: AsyncShell
    stream: Stream
    queue: StoredQueue


class SqsDelivery(msgspec.Struct, frozen=True):
    """Messages leased by one receive, and the partition they came from."""

    partition: QueuePartition
    entries: list[Entry]


WINDOW_MS = 5 * MINUTE_MS


class _Lease(msgspec.Struct, frozen=True):
    entry: Entry
    lease_id: int
    deadline_ms: int

    def untouched(self) -> bool:
        entry = self.entry
        return (
            entry.state is EntryState.LEASED
            and entry.lease_id == self.lease_id
            and entry.deadline_ms == self.deadline_ms
        )


class _Handed(msgspec.Struct, frozen=True):
    deliveries: list[SqsDelivery]
    leases: list[_Lease]


class ReceiveAttempts:
    """What each attempt id was answered with, while nothing of it was deleted, changed or has run out."""

    def __init__(self) -> None:
        self._attempts: DedupWindow[_Handed] = DedupWindow(WINDOW_MS)

    def repeat(self, attempt_id: str, lease_ms: int, now_ms: int) -> list[SqsDelivery] | None:
        """The deliveries of an earlier attempt with fresh deadlines; None when there is no such attempt to repeat."""
        handed = self._attempts.find(attempt_id, now_ms)
        if handed is None or not all(lease.untouched() and lease.deadline_ms > now_ms for lease in handed.leases):
            return None
        for delivery in handed.deliveries:
            partition = delivery.partition
            for entry in delivery.entries:
                partition.shell.ledger.set_deadline(partition.queue, entry.lease_id, now_ms + lease_ms, now_ms)
        self.remember(attempt_id, handed.deliveries, now_ms)
        return handed.deliveries

    def remember(self, attempt_id: str, deliveries: list[SqsDelivery], now_ms: int) -> None:
        """Answer the same attempt id with these deliveries."""
        entries = (entry for delivery in deliveries for entry in delivery.entries)
        leases = [_Lease(entry, entry.lease_id, entry.deadline_ms) for entry in entries]
        self._attempts.remember(attempt_id, _Handed(deliveries, leases), now_ms)

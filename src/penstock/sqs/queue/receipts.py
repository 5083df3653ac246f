"""What a receive hands out: deliveries, their receipt handles, and the attempts that FIFO queues repeat.

    version u8 | partition u8 | incarnation u64 | sequence u64 | lease u64

A handle is opaque to clients. Its incarnation identifies the queue (one created again under the same name has
another), its sequence the message, its lease one hand-out of it by one process.
"""

import struct
from functools import partial

import msgspec

from penstock.domain.limits import MINUTE_MS
from penstock.engine import AsyncShell, DedupWindow, Entry, EntryState, Pending, StoredQueue, Stream
from penstock.sqs.errors import missing_parameter, receipt_handle_is_invalid

WINDOW_MS = 5 * MINUTE_MS
MAX_DELETIONS = 10_000

_VERSION = 2
_LAYOUT = struct.Struct(">BBQQQ")
_TEXT_LENGTH = 2 * _LAYOUT.size
_pack, _unpack = _LAYOUT.pack, _LAYOUT.unpack
_from_hex = bytes.fromhex


class ReceiptHandle(msgspec.Struct, frozen=True, gc=False):
    """The contents of a receipt handle."""

    version: int
    partition: int
    incarnation: int
    seq: int
    lease_id: int


def encode_handle(partition: int, incarnation: int, seq: int, lease_id: int) -> str:
    """Return the handle as clients see it."""
    return _pack(_VERSION, partition, incarnation, seq, lease_id).hex()


def decode_handle(text: str) -> ReceiptHandle:
    """Return the contents of a handle; ReceiptHandleIsInvalid if it is not one of ours."""
    try:
        handle = ReceiptHandle(*_unpack(_from_hex(text)))
    except (ValueError, struct.error):
        raise (receipt_handle_is_invalid(text) if text.strip() else missing_parameter("ReceiptHandle")) from None
    if handle.version != _VERSION or len(text) != _TEXT_LENGTH:
        raise receipt_handle_is_invalid(text)
    return handle


class RecentDeletions:
    """The leases by which messages were deleted lately, so that a client may repeat a request it got no answer to."""

    __slots__ = ("_leases",)

    def __init__(self) -> None:
        self._leases: dict[int, None] = {}

    def __contains__(self, lease_id: int) -> bool:
        return lease_id in self._leases

    def add(self, lease_ids: list[int], pending: Pending) -> None:
        """Remember leases, unless the deletion fails."""
        leases = self._leases
        leases.update(dict.fromkeys(lease_ids))
        while len(leases) > MAX_DELETIONS:
            del leases[next(iter(leases))]
        if not pending.done:
            pending.on_failure(partial(self._forget, lease_ids))

    def _forget(self, lease_ids: list[int]) -> None:
        for lease_id in lease_ids:
            self._leases.pop(lease_id, None)


class QueuePartition(msgspec.Struct, frozen=True):
    """A part of a queue with its own order, deduplication and writer."""

    index: int
    shell: AsyncShell
    stream: Stream
    queue: StoredQueue
    deletions: RecentDeletions = msgspec.field(default_factory=RecentDeletions)


class SqsDelivery(msgspec.Struct, frozen=True):
    """Messages leased by one receive, and the partition they came from."""

    partition: QueuePartition
    entries: list[Entry]


class _Lease(msgspec.Struct, frozen=True):
    entry: Entry
    lease_id: int
    deadline_ms: int

    def is_unchanged(self) -> bool:
        entry = self.entry
        return (
            entry.state is EntryState.LEASED
            and entry.lease_id == self.lease_id
            and entry.deadline_ms == self.deadline_ms
        )


class _Attempt(msgspec.Struct, frozen=True):
    deliveries: list[SqsDelivery]
    leases: list[_Lease]


class ReceiveAttempts:
    """The answer to each attempt id of the last five minutes, while all of its leases are as they were."""

    def __init__(self) -> None:
        self._attempts: DedupWindow[_Attempt] = DedupWindow(WINDOW_MS)

    def repeat(self, attempt_id: str, lease_ms: int, now_ms: int) -> list[SqsDelivery] | None:
        """Return the deliveries of an earlier attempt with new deadlines; None if there is none to repeat."""
        attempt = self._attempts.find(attempt_id, now_ms)
        if attempt is None or not all(lease.is_unchanged() and lease.deadline_ms > now_ms for lease in attempt.leases):
            return None
        for delivery in attempt.deliveries:
            partition = delivery.partition
            for entry in delivery.entries:
                partition.shell.ledger.set_deadline(partition.queue, entry.lease_id, now_ms + lease_ms, now_ms)
        self.remember(attempt_id, attempt.deliveries, now_ms)
        return attempt.deliveries

    def remember(self, attempt_id: str, deliveries: list[SqsDelivery], now_ms: int) -> None:
        """Keep these deliveries as the answer to an attempt id."""
        entries = (entry for delivery in deliveries for entry in delivery.entries)
        leases = [_Lease(entry, entry.lease_id, entry.deadline_ms) for entry in entries]
        self._attempts.remember(attempt_id, _Attempt(deliveries, leases), now_ms)

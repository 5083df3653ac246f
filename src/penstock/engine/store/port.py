"""The store port: what a queue needs to survive a crash.

A stream is a log of messages in segments; each queue of the stream records which messages of a segment it is done
with. A topic is a stream with a queue per subscription, so a body is stored once for all subscriptions; an SQS queue
(or each of its partitions) is a stream with one queue.

A store is synchronous: one writer calls `apply`, and reads may run at the same time in another thread.
"""

from typing import Protocol

import msgspec

from penstock.edge.disk_space import DiskSpace
from penstock.engine.store.flush import FileFlush


class StreamRecord(msgspec.Struct, frozen=True):
    """A stream; `seq_limit` is above every sequence number it ever assigned."""

    id: int
    name: str
    config: bytes
    seq_limit: int = 0


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue of a stream; it gets messages from `start_seq` on."""

    id: int
    stream_id: int
    name: str
    config: bytes
    start_seq: int = 0


class SegmentRow(msgspec.Struct, frozen=True):
    """Messages of one stream that were sent in one commit, encoded by `segment_codec`."""

    stream_id: int
    first_seq: int
    count: int
    size_bytes: int
    frames: list[bytes]


class AckRow(msgspec.Struct, frozen=True):
    """Which messages of a segment a queue is done with; `dead` is None if that is all of them."""

    queue_id: int
    stream_id: int
    first_seq: int
    dead: bytes | None
    dead_count: int
    dead_bytes: int


class DeliveryRow(msgspec.Struct, frozen=True):
    """The delivery count of a message that came back, or its lease if that was running at a planned stop."""

    queue_id: int
    seq: int
    receive_count: int
    first_received_ms: int
    lease_id: int = 0
    leased_ms: int = 0
    deadline_ms: int = 0


class DedupRow(msgspec.Struct, frozen=True):
    """The deduplication ids of a segment, kept even if its messages no longer exist."""

    stream_id: int
    first_seq: int
    expires_ms: int
    keys: bytes


class DamagedRow(msgspec.Struct, frozen=True):
    """A record that failed its checksum: set aside for a person to examine, never delivered."""

    stream_id: int
    first_seq: int
    seq: int
    reason: str
    payload: bytes
    found_ms: int


class StoredSegment(msgspec.Struct, frozen=True):
    """A segment as read back for one queue."""

    first_seq: int
    count: int
    size_bytes: int
    payload: bytes
    dead: bytes | None


class StoreTotals(msgspec.Struct, frozen=True):
    """What a queue still has in the store."""

    messages: int
    size_bytes: int


class WriteBatch(msgspec.Struct, kw_only=True):
    """One transaction: all of it is saved or nothing."""

    put_streams: list[StreamRecord] = []
    put_queues: list[QueueRecord] = []
    seq_limits: dict[int, int] = {}
    segments: list[SegmentRow] = []
    dedups: list[DedupRow] = []
    deliveries: list[DeliveryRow] = []
    acks: list[AckRow] = []
    clone_acks: list[tuple[int, int]] = []
    """(queue, new queue): the new one is done with the same messages, after the acks above."""
    forget_deliveries: list[tuple[int, int, int]] = []
    """(queue, first sequence, last sequence) of segments the queue is done with."""
    drop_segments: list[tuple[int, int]] = []
    """(stream, first sequence) of segments that no queue needs."""
    damaged: list[DamagedRow] = []
    purge_queues: list[tuple[int, int]] = []
    """(queue, sequence): the queue is done with everything before it."""
    forget_dedups: list[tuple[int, int]] = []
    """(stream, sequence): deduplication ids of messages before it are forgotten."""
    shrink_streams: list[tuple[int, int]] = []
    """(stream, count): up to this many of its oldest segments are removed, even if a queue needs them."""
    drop_queues: list[int] = []
    drop_streams: list[int] = []
    collect_streams: list[int] = []
    """Streams from which to remove segments that no queue needs, after all of the above."""
    dedup_horizon_ms: int = 0
    """Deduplication ids that expired by this time are removed."""

    @property
    def size_bytes(self) -> int:
        """The size of its messages."""
        return sum([segment.size_bytes for segment in self.segments])


Shares = dict[int, dict[int, int]]
"""Stream id → first sequence → number of queues that need the segment, for segments that two or more need."""


class Store(Protocol):
    """Durable streams, queues, and what each queue is done with."""

    @property
    def durable(self) -> bool:
        """Whether anything survives a restart."""
        ...

    @property
    def local(self) -> bool:
        """Whether a commit is work of this process and its disk, not a wait for another process."""
        ...

    @property
    def flush(self) -> FileFlush | None:
        """The file to flush after `apply` before its result can be relied on; None if `apply` does all."""
        ...

    @property
    def disk_space(self) -> DiskSpace | None:
        """The disk it is on, if it is on this machine."""
        ...

    def open(self) -> tuple[list[StreamRecord], list[QueueRecord]]:
        """Lock, migrate and read the catalog; raise StoreLocked if another process has it."""
        ...

    def apply(self, batch: WriteBatch) -> Shares:
        """Commit a batch and return the shares of its `collect_streams`; raise StoreFailed if nothing was saved."""
        ...

    def require_owned(self) -> None:
        """Raise Unavailable if another process may own the store by now; ask before anything in memory is served."""
        ...

    @property
    def epoch(self) -> int:
        """The number of this opening of a store that others may take, larger than all before; else 0."""
        ...

    @property
    def lost(self) -> str | None:
        """Why this process must end, because another one owns the store; None while it may use it."""
        ...

    def totals(self, queue_id: int) -> StoreTotals:
        """Return what a queue still has."""
        ...

    def read(self, queue_id: int, from_seq: int, max_messages: int, max_bytes: int) -> list[StoredSegment]:
        """Return the next segments a queue is not done with, from a sequence number on; at least one if any exists."""
        ...

    def deliveries(self, queue_id: int, first_seq: int, last_seq: int) -> list[DeliveryRow]:
        """Return the delivery counts of messages that came back."""
        ...

    def last_leases(self, now_ms: int) -> dict[int, int]:
        """Return the last sequence with a lease that still runs, by queue id."""
        ...

    def dedups(self, now_ms: int) -> list[DedupRow]:
        """Return deduplication ids that have not expired, oldest first."""
        ...

    def shares(self) -> Shares:
        """Return how many queues need each segment, for all streams."""
        ...

    def damaged(self) -> list[DamagedRow]:
        """Return the records that were set aside."""
        ...

    def close(self) -> None:
        """Release files, connections and locks."""
        ...

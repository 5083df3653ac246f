"""The store port: what a queue needs to survive a crash.

A stream is a log of messages in segments; each queue of the stream records which messages of a segment it is done
with. A topic is a stream with a queue per subscription, so a body is stored once however many subscribe; an SQS queue
(or each of its partitions) is a stream with one queue.

A store is synchronous: one writer calls `apply`, and reads may run beside it in another thread.
"""

from typing import Protocol

import msgspec

from penstock.edge.disk_space import DiskSpace
from penstock.engine.store.flush import FileFlush


class StreamRecord(msgspec.Struct, frozen=True):
    """A stream; `seq_limit` is above every sequence number it ever gave out."""

    id: int
    name: str
    config: bytes
    seq_limit: int = 0


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue of a stream; it is concerned with messages from `start_seq` on."""

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
    """Which messages of a segment a queue is done with; `dead` is None when it is done with all of them."""

    queue_id: int
    stream_id: int
    first_seq: int
    dead: bytes | None
    dead_count: int
    dead_bytes: int


class DeliveryRow(msgspec.Struct, frozen=True):
    """How often a message that came back was handed out."""

    queue_id: int
    seq: int
    receive_count: int
    first_received_ms: int


class DedupRow(msgspec.Struct, frozen=True):
    """The deduplication ids of a segment, remembered whether or not its messages still exist."""

    stream_id: int
    first_seq: int
    expires_ms: int
    keys: bytes


class DamagedRow(msgspec.Struct, frozen=True):
    """A record that failed its checksum: set aside for a person to look at, never served."""

    stream_id: int
    first_seq: int
    seq: int
    reason: str
    payload: bytes
    found_ms: int


class StoredSegment(msgspec.Struct, frozen=True):
    """A segment as it was read back for one queue."""

    first_seq: int
    count: int
    size_bytes: int
    payload: bytes
    dead: bytes | None


class StoreTotals(msgspec.Struct, frozen=True):
    """What a queue has left in the store."""

    messages: int
    size_bytes: int


class WriteBatch(msgspec.Struct, kw_only=True):
    """One transaction: all of it is kept or nothing."""

    put_streams: list[StreamRecord] = []
    put_queues: list[QueueRecord] = []
    seq_limits: dict[int, int] = {}
    segments: list[SegmentRow] = []
    dedups: list[DedupRow] = []
    deliveries: list[DeliveryRow] = []
    acks: list[AckRow] = []
    clone_acks: list[tuple[int, int]] = []
    """(queue, fresh queue): the fresh one is done with what the other is done with, after the acks above."""
    forget_deliveries: list[tuple[int, int, int]] = []
    """(queue, first sequence, last sequence) of segments the queue is done with."""
    drop_segments: list[tuple[int, int]] = []
    """(stream, first sequence) of segments no queue needs any more."""
    damaged: list[DamagedRow] = []
    purge_queues: list[tuple[int, int]] = []
    """(queue, sequence): the queue is done with everything before it."""
    drop_queues: list[int] = []
    drop_streams: list[int] = []
    collect_streams: list[int] = []
    """Streams from which segments that no queue needs are to be removed, after all of the above."""
    dedup_horizon_ms: int = 0
    """Deduplication ids that expired by this moment are removed."""

    @property
    def size_bytes(self) -> int:
        """How large the messages are that it brings."""
        return sum([segment.size_bytes for segment in self.segments])


Shares = dict[int, dict[int, int]]
"""Stream id → first sequence → how many queues still need that segment, for segments that two or more need."""


class Store(Protocol):
    """Durable streams, queues, and what each queue is done with."""

    @property
    def durable(self) -> bool:
        """Whether anything survives; a store that keeps nothing is never asked to."""
        ...

    @property
    def local(self) -> bool:
        """Whether a commit is work of this process and its disk, and not a wait for another process."""
        ...

    @property
    def flush(self) -> FileFlush | None:
        """What is to be flushed after `apply`, before anybody may rely on it; None when `apply` does all."""
        ...

    @property
    def disk_space(self) -> DiskSpace | None:
        """The disk it is on, if it is this machine's."""
        ...

    def open(self) -> tuple[list[StreamRecord], list[QueueRecord]]:
        """Lock, migrate and read the catalog; StoreLocked when another process has it."""
        ...

    def apply(self, batch: WriteBatch) -> Shares:
        """Commit a batch and return the shares of its `collect_streams`; StoreFailed and nothing kept otherwise."""
        ...

    def totals(self, queue_id: int) -> StoreTotals:
        """What a queue has left."""
        ...

    def read(self, queue_id: int, from_seq: int, max_messages: int, max_bytes: int) -> list[StoredSegment]:
        """The next segments a queue is not done with, from a sequence number on, at least one if there is any."""
        ...

    def deliveries(self, queue_id: int, first_seq: int, last_seq: int) -> list[DeliveryRow]:
        """Delivery counts of messages that came back."""
        ...

    def dedups(self, now_ms: int) -> list[DedupRow]:
        """Deduplication ids that have not expired, oldest first."""
        ...

    def shares(self) -> Shares:
        """How many queues need each segment, for all streams."""
        ...

    def damaged(self) -> list[DamagedRow]:
        """Records that were set aside."""
        ...

    def close(self) -> None:
        """Release files, connections and locks."""
        ...

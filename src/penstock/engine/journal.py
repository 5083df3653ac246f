"""The journal: the operations since the last commit, gathered into one write batch."""

from msgspec.structs import replace

from penstock.engine.pending import Pending
from penstock.engine.queue.entry import Entry
from penstock.engine.store.port import AckRow, DeliveryRow, WriteBatch
from penstock.engine.store.segment_codec import encode_bitmap
from penstock.engine.stored_queue import SegmentAcks, StoredQueue
from penstock.engine.stream import SEQ_BLOCK, SegmentBuilder, Stream


class LedgerCommit:
    """One commit in progress: its batch, and what to do in memory when the store has answered."""

    __slots__ = ("batch", "builders", "changes", "finished", "pendings", "undo_limits", "undo_shares")

    def __init__(self) -> None:
        self.batch = WriteBatch()
        self.changes: list[Pending] = []
        """Changes of streams and queues; they take effect before the messages of the same commit."""
        self.builders: list[SegmentBuilder] = []
        self.finished: list[tuple[StoredQueue, SegmentAcks]] = []
        self.undo_limits: list[tuple[Stream, int]] = []
        self.undo_shares: list[tuple[Stream, int, int]] = []
        self.pendings: list[Pending] = []


class Journal:
    """Gathers operations; `take` turns them into a commit."""

    __slots__ = ("_commit", "_deliveries", "_durable", "_touched", "is_empty")

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self.is_empty = True
        """Whether there is nothing to commit and no caller waits for a commit."""
        self._commit = LedgerCommit()
        self._touched: dict[tuple[int, int], tuple[Stream, StoredQueue, SegmentAcks]] = {}
        self._deliveries: dict[tuple[int, int], tuple[StoredQueue, DeliveryRow]] = {}

    @property
    def batch(self) -> WriteBatch:
        """The batch being filled, for changes that need no gathering."""
        self.is_empty = False
        return self._commit.batch

    @property
    def waiting_callers(self) -> int:
        """The number of operations that the next commit will answer."""
        return len(self._commit.pendings)

    def wait(self, pending: Pending) -> None:
        """Finish an operation with the commit that contains it, or immediately if the store is not durable."""
        if self._durable:
            self._commit.pendings.append(pending)
            self.is_empty = False
        else:
            pending.committed()

    def change(self, pending: Pending) -> Pending:
        """Do the same for a change of streams or queues, and return the operation."""
        if self._durable:
            self._commit.changes.append(pending)
            self.is_empty = False
        else:
            self._commit.batch = WriteBatch()
            self.is_empty = True
            pending.committed()
        return pending

    def builder(self, stream: Stream) -> SegmentBuilder:
        """Return the segment of a stream for the next message."""
        builder = stream.builder
        if builder is None or builder.full:
            builder = stream.builder = SegmentBuilder(stream, stream.next_seq)
            self._commit.builders.append(builder)
            self.is_empty = False
        return builder

    def touch(self, stream: Stream, queue: StoredQueue, acks: SegmentAcks) -> None:
        """Record that a queue is done with more of a segment than the store knows."""
        self._touched[queue.id, acks.segment.first_seq] = (stream, queue, acks)
        self.is_empty = False

    def save_delivery(self, queue: StoredQueue, entry: Entry) -> None:
        """Save the delivery count of a message that came back, and its lease if that outlives this process."""
        row = DeliveryRow(queue.id, entry.seq, entry.receive_count, entry.first_received_ms)
        if entry.deadline_ms and queue.engine.policy.keep_leases:
            row = replace(row, lease_id=entry.lease_id, leased_ms=entry.leased_ms, deadline_ms=entry.deadline_ms)
        self._deliveries[queue.id, entry.seq] = (queue, row)
        self.is_empty = False

    def take(self) -> LedgerCommit:
        """Return everything gathered so far, and start again."""
        commit, self._commit = self._commit, LedgerCommit()
        self.is_empty = True
        for builder in commit.builders:
            if builder.stream.builder is builder:
                builder.stream.builder = None
            _reserve(commit, builder)
            self._write_segment(commit, builder)
        touched, self._touched = self._touched, {}
        deliveries, self._deliveries = self._deliveries, {}
        # Rows of purged or dropped queues are already settled; settling them again could free segments others need.
        commit.batch.deliveries = [
            row for queue, row in deliveries.values() if row.seq >= queue.start_seq and not queue.closing
        ]
        for stream, queue, acks in touched.values():
            if acks.segment.first_seq >= queue.start_seq and not queue.closing:
                self._write_acks(commit, stream, queue, acks)
        return commit

    def _write_segment(self, commit: LedgerCommit, builder: SegmentBuilder) -> None:
        commit.batch.segments.append(builder.row())
        if builder.dedup_keys:
            commit.batch.dedups.append(builder.dedup_row())
        for queue_id, dead in builder.skips.items():
            queue = builder.stream.queues.get(queue_id)
            if queue is None:
                continue
            acks = queue.acks_of(builder.segment())
            for index, message in enumerate(builder.messages):
                if dead >> index & 1:
                    acks.mark(builder.first_seq + index, message.size_bytes)
            commit.batch.acks.append(_ack_row(builder.stream, queue, acks))

    def _write_acks(self, commit: LedgerCommit, stream: Stream, queue: StoredQueue, acks: SegmentAcks) -> None:
        segment = acks.segment
        if not acks.done:
            commit.batch.acks.append(_ack_row(stream, queue, acks))
            return
        commit.finished.append((queue, acks))
        if acks.has_deliveries:
            last_seq = segment.first_seq + segment.count - 1
            commit.batch.forget_deliveries.append((queue.id, segment.first_seq, last_seq))
        shares = stream.shares.get(segment.first_seq, 1)
        if stream.release_share(segment.first_seq):
            commit.batch.drop_segments.append((stream.id, segment.first_seq))
        else:
            commit.undo_shares.append((stream, segment.first_seq, shares))
            commit.batch.acks.append(_ack_row(stream, queue, acks))


def _reserve(commit: LedgerCommit, builder: SegmentBuilder) -> None:
    """Keep the stored limit of sequence numbers above a segment's numbers, in the commit that needs it."""
    stream = builder.stream
    end_seq = builder.first_seq + len(builder.messages)
    if end_seq > stream.seq_limit:
        commit.undo_limits.append((stream, stream.seq_limit))
        stream.seq_limit = commit.batch.seq_limits[stream.id] = end_seq + SEQ_BLOCK


def _ack_row(stream: Stream, queue: StoredQueue, acks: SegmentAcks) -> AckRow:
    dead = None if acks.done else encode_bitmap(acks.dead, acks.segment.count)
    return AckRow(queue.id, stream.id, acks.segment.first_seq, dead, acks.dead_count, acks.dead_bytes)

"""The journal: what has happened since the last commit was taken, gathered into one write batch."""

from penstock.engine.entry import Entry
from penstock.engine.pending import Pending
from penstock.engine.store.port import AckRow, DeliveryRow, WriteBatch
from penstock.engine.store.segment_codec import encode_bitmap
from penstock.engine.stored_queue import SegmentAcks, StoredQueue
from penstock.engine.stream import SEQ_BLOCK, SegmentBuilder, Stream


class Flight:
    """One commit under way: its batch, and what to do in memory when the store has answered."""

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
    """Gathers operations; `take` turns them into a flight."""

    __slots__ = ("_deliveries", "_durable", "_flight", "_touched", "is_empty")

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self.is_empty = True
        """Whether there is nothing to commit and nobody waiting for a commit."""
        self._flight = Flight()
        self._touched: dict[tuple[int, int], tuple[Stream, StoredQueue, SegmentAcks]] = {}
        self._deliveries: dict[tuple[int, int], tuple[StoredQueue, DeliveryRow]] = {}

    @property
    def batch(self) -> WriteBatch:
        """The batch being filled, for changes that need no gathering."""
        self.is_empty = False
        return self._flight.batch

    @property
    def waiting_callers(self) -> int:
        """How many operations the next commit will answer."""
        return len(self._flight.pendings)

    def wait(self, pending: Pending) -> None:
        """Tell an operation about the outcome of the commit that carries it; at once when nothing is durable."""
        if self._durable:
            self._flight.pendings.append(pending)
            self.is_empty = False
        else:
            pending.committed()

    def change(self, pending: Pending) -> Pending:
        """The same for a change of streams or queues; gives the operation back."""
        if self._durable:
            self._flight.changes.append(pending)
            self.is_empty = False
        else:
            self._flight.batch = WriteBatch()
            self.is_empty = True
            pending.committed()
        return pending

    def builder(self, stream: Stream) -> SegmentBuilder:
        """The segment of a stream that the next message goes into."""
        builder = stream.builder
        if builder is None or builder.full:
            builder = stream.builder = SegmentBuilder(stream, stream.next_seq)
            self._flight.builders.append(builder)
            self.is_empty = False
        return builder

    def touch(self, stream: Stream, queue: StoredQueue, acks: SegmentAcks) -> None:
        """A queue is done with more of a segment than the store knows."""
        self._touched[queue.id, acks.segment.first_seq] = (stream, queue, acks)
        self.is_empty = False

    def note_delivery(self, queue: StoredQueue, entry: Entry) -> None:
        """A message came back: keep its delivery count."""
        row = DeliveryRow(queue.id, entry.seq, entry.receive_count, entry.first_received_ms)
        self._deliveries[queue.id, entry.seq] = (queue, row)
        self.is_empty = False

    def take(self) -> Flight:
        """Everything gathered so far; gathering starts anew."""
        flight, self._flight = self._flight, Flight()
        self.is_empty = True
        for builder in flight.builders:
            if builder.stream.builder is builder:
                builder.stream.builder = None
            _reserve(flight, builder)
            self._write_segment(flight, builder)
        touched, self._touched = self._touched, {}
        deliveries, self._deliveries = self._deliveries, {}
        # What was purged or dropped meanwhile is settled already; to settle it again could free what others need.
        flight.batch.deliveries = [
            row for queue, row in deliveries.values() if row.seq >= queue.start_seq and not queue.closing
        ]
        for stream, queue, acks in touched.values():
            if acks.segment.first_seq >= queue.start_seq and not queue.closing:
                self._write_acks(flight, stream, queue, acks)
        return flight

    def _write_segment(self, flight: Flight, builder: SegmentBuilder) -> None:
        flight.batch.segments.append(builder.row())
        if builder.dedup_keys:
            flight.batch.dedups.append(builder.dedup_row())
        for queue_id, dead in builder.skips.items():
            queue = builder.stream.queues.get(queue_id)
            if queue is None:
                continue
            acks = queue.acks_of(builder.segment())
            for index, message in enumerate(builder.messages):
                if dead >> index & 1:
                    acks.mark(builder.first_seq + index, message.size_bytes)
            flight.batch.acks.append(_ack_row(builder.stream, queue, acks))

    def _write_acks(self, flight: Flight, stream: Stream, queue: StoredQueue, acks: SegmentAcks) -> None:
        segment = acks.segment
        if not acks.done:
            flight.batch.acks.append(_ack_row(stream, queue, acks))
            return
        flight.finished.append((queue, acks))
        if acks.has_deliveries:
            last_seq = segment.first_seq + segment.count - 1
            flight.batch.forget_deliveries.append((queue.id, segment.first_seq, last_seq))
        shares = stream.shares.get(segment.first_seq, 1)
        if stream.release_share(segment.first_seq):
            flight.batch.drop_segments.append((stream.id, segment.first_seq))
        else:
            flight.undo_shares.append((stream, segment.first_seq, shares))
            flight.batch.acks.append(_ack_row(stream, queue, acks))


def _reserve(flight: Flight, builder: SegmentBuilder) -> None:
    """Keep the limit of sequence numbers in the store above those of a segment, with the commit that needs it."""
    stream = builder.stream
    end_seq = builder.first_seq + len(builder.messages)
    if end_seq > stream.seq_limit:
        flight.undo_limits.append((stream, stream.seq_limit))
        stream.seq_limit = flight.batch.seq_limits[stream.id] = end_seq + SEQ_BLOCK


def _ack_row(stream: Stream, queue: StoredQueue, acks: SegmentAcks) -> AckRow:
    dead = None if acks.done else encode_bitmap(acks.dead, acks.segment.count)
    return AckRow(queue.id, stream.id, acks.segment.first_seq, dead, acks.dead_count, acks.dead_bytes)

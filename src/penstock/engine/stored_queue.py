"""A queue of a stream: its window in memory, its backlog in the store, and the schedule of all queues."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec

from penstock.domain.message import Message
from penstock.engine.queue.entry import Counters, Entry, Segment
from penstock.engine.queue.leased_queue import LeasedQueue
from penstock.engine.queue.policy import QueuePolicy, Window


class SegmentAcks(msgspec.Struct):
    """Which messages of a segment one queue is done with, kept while it is done with some but not all."""

    segment: Segment
    dead: int = 0
    dead_count: int = 0
    dead_bytes: int = 0
    has_deliveries: bool = False
    """Whether delivery counts of its messages are in the store and must be removed with it."""

    def mark(self, seq: int, size_bytes: int) -> None:
        """Mark one message as done."""
        self.dead |= 1 << (seq - self.segment.first_seq)
        self.dead_count += 1
        self.dead_bytes += size_bytes

    def mark_all(self, entries: Iterable[Entry]) -> None:
        """Mark several messages as done."""
        first_seq = self.segment.first_seq
        dead, dead_count, dead_bytes = self.dead, self.dead_count, self.dead_bytes
        for entry in entries:
            dead |= 1 << (entry.seq - first_seq)
            dead_count += 1
            dead_bytes += entry.message.size_bytes
        self.dead, self.dead_count, self.dead_bytes = dead, dead_count, dead_bytes

    def unmark(self, seq: int, size_bytes: int) -> None:
        """Mark a message as not done after all."""
        self.dead &= ~(1 << (seq - self.segment.first_seq))
        self.dead_count -= 1
        self.dead_bytes -= size_bytes

    @property
    def done(self) -> bool:
        """Whether the queue is done with the whole segment."""
        return self.dead_count >= self.segment.count


class StoredQueue:
    """The engine of one queue, and its connection to its stream and store."""

    __slots__ = (
        "acks",
        "armed_ms",
        "closing",
        "config",
        "engine",
        "id",
        "incoming",
        "incoming_bytes",
        "name",
        "next_stored_seq",
        "on_dead_letters",
        "on_dropped",
        "on_ready",
        "reopened_seq",
        "start_seq",
        "stored",
        "stored_bytes",
        "stream_id",
        "unwanted",
        "window",
    )

    def __init__(
        self,
        queue_id: int,
        stream_id: int,
        name: str,
        config: bytes,
        start_seq: int,
        policy: QueuePolicy,
        window: Window,
        *,
        durable: bool,
        last_lease_id: int = 0,
        reopened_seq: int = 0,
    ) -> None:
        self.id = queue_id
        self.stream_id = stream_id
        self.name = name
        self.config = config
        self.start_seq = start_seq
        self.window = window
        # Handles of leases that are kept must never mean a lease of another process.
        first = last_lease_id if policy.keep_leases else 0
        self.engine = LeasedQueue(policy, track_releases=durable, last_lease_id=first)
        self.reopened_seq = reopened_seq
        """Messages before this sequence may have been leased by an earlier process."""
        self.acks: dict[int, SegmentAcks] = {}
        self.next_stored_seq: int | None = None
        """Messages from here on are only in the store; None if all are in memory."""
        self.stored = 0
        self.stored_bytes = 0
        self.incoming = 0
        self.incoming_bytes = 0
        self.closing = False
        self.armed_ms: int | None = None
        self.unwanted: Callable[[Message], bool] | None = None
        """Returns whether to drop a message that is read from the store."""
        self.on_ready: Callable[[], None] | None = None
        self.on_dropped: Callable[[], None] | None = None
        self.on_dead_letters: Callable[[list[Entry]], None] | None = None

    @property
    def total(self) -> int:
        """All messages the queue is responsible for, including those being committed."""
        return self.engine.held + self.stored + self.incoming

    @property
    def total_bytes(self) -> int:
        """The bytes of `total`."""
        return self.engine.held_bytes + self.stored_bytes + self.incoming_bytes

    @property
    def has_unread_leases(self) -> bool:
        """Whether messages that an earlier process may have leased are only in the store."""
        return self.next_stored_seq is not None and self.next_stored_seq < self.reopened_seq

    def counters(self) -> Counters:
        """Return the number of messages by state."""
        return self.engine.counters().beyond_window(self.stored, self.stored_bytes)

    def add(self, first_seq: int, messages: Sequence[Message], segment: Segment | None, skip: int, now_ms: int) -> None:
        """Add messages: to memory if the window has space and no older ones are in the store."""
        if segment is not None and (self.next_stored_seq is not None or self._window_is_full()):
            self._leave_in_store(segment, messages, skip)
        elif skip:
            self.engine.add(
                [
                    Entry(first_seq + index, message, segment, message.deliver_at_ms)
                    for index, message in enumerate(messages)
                    if not skip >> index & 1
                ],
                now_ms,
            )
        else:
            self.engine.add(
                [
                    Entry(seq, message, segment, message.deliver_at_ms)
                    for seq, message in enumerate(messages, first_seq)
                ],
                now_ms,
            )

    def acks_of(self, segment: Segment) -> SegmentAcks:
        """Return the bitmap of a segment, a new one if there is none."""
        acks = self.acks.get(segment.first_seq)
        if acks is None:
            acks = self.acks[segment.first_seq] = SegmentAcks(segment)
        return acks

    def wants_page(self) -> bool:
        """Return whether to read the next page from the store."""
        if self.next_stored_seq is None or self.engine.held >= self.window.lookahead:
            return False
        return not self.engine.has_ready() or (
            self.engine.visible < self.window.messages // 2 and not self._window_is_full()
        )

    def notify(self) -> None:
        """Wake a waiting receiver if a receive may find a message."""
        if self.on_ready is not None and self.engine.has_ready():
            self.on_ready()

    def _window_is_full(self) -> bool:
        return self.engine.held >= self.window.messages or self.engine.held_bytes >= self.window.size_bytes

    def _leave_in_store(self, segment: Segment, messages: Sequence[Message], skip: int) -> None:
        if self.next_stored_seq is None:
            self.next_stored_seq = segment.first_seq
        self.acks.pop(segment.first_seq, None)  # read again with its page
        self.stored += segment.count - skip.bit_count()
        self.stored_bytes += segment.size_bytes
        if skip:
            self.stored_bytes -= sum(m.size_bytes for index, m in enumerate(messages) if skip >> index & 1)


class QueueSchedule:
    """The queues by the time of their next due lease or delayed message; idle queues cost nothing."""

    __slots__ = ("_heap", "_ties")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, StoredQueue]] = []
        self._ties = count()

    def arm(self, queue: StoredQueue) -> None:
        """Schedule the queue for its next due time."""
        due_ms = queue.engine.next_due_ms()
        if due_ms is None or (queue.armed_ms is not None and queue.armed_ms <= due_ms):
            return
        queue.armed_ms = due_ms
        heappush(self._heap, (due_ms, next(self._ties), queue))

    def pop_due(self, now_ms: int) -> StoredQueue | None:
        """Remove and return the next queue that is due; the caller arms it again."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            due_ms, _, queue = heappop(heap)
            # A queue that was armed again for an earlier time leaves its later entry behind.
            if queue.armed_ms == due_ms:
                queue.armed_ms = None
                return queue
        return None

    def next_due_ms(self) -> int | None:
        """Return a time before which no queue is due."""
        return self._heap[0][0] if self._heap else None

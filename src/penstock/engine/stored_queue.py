"""A queue of a stream: its window in memory, and how much of it lies beyond in the store.

Which messages of a segment one queue is done with.

When each queue has something timed to do: one heap for all of them, and nothing for those that are idle.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec

from penstock.domain.message import Message
from penstock.engine.entry import Counters, Entry, Segment
from penstock.engine.leased_queue import LeasedQueue
from penstock.engine.policy import QueuePolicy, Window


class SegmentAcks(msgspec.Struct):
    """A bitmap over a segment, kept while the queue is done with some of its messages but not all."""

    segment: Segment
    dead: int = 0
    dead_count: int = 0
    dead_bytes: int = 0
    has_deliveries: bool = False
    """Whether delivery counts of its messages are in the store and must be removed with it."""

    def mark(self, seq: int, size_bytes: int) -> None:
        """The queue is done with this message."""
        self.dead |= 1 << (seq - self.segment.first_seq)
        self.dead_count += 1
        self.dead_bytes += size_bytes

    def mark_all(self, entries: Iterable[Entry]) -> None:
        """The queue is done with these messages."""
        first_seq = self.segment.first_seq
        dead, dead_count, dead_bytes = self.dead, self.dead_count, self.dead_bytes
        for entry in entries:
            dead |= 1 << (entry.seq - first_seq)
            dead_count += 1
            dead_bytes += entry.message.size_bytes
        self.dead, self.dead_count, self.dead_bytes = dead, dead_count, dead_bytes

    def unmark(self, seq: int, size_bytes: int) -> None:
        """The queue is not done with this message after all."""
        self.dead &= ~(1 << (seq - self.segment.first_seq))
        self.dead_count -= 1
        self.dead_bytes -= size_bytes

    @property
    def done(self) -> bool:
        """Whether nothing of the segment is left for the queue."""
        return self.dead_count >= self.segment.count


class StoredQueue:
    """The engine of one queue with what ties it to its stream and its store."""

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
    ) -> None:
        self.id = queue_id
        self.stream_id = stream_id
        self.name = name
        self.config = config
        self.start_seq = start_seq
        self.window = window
        self.engine = LeasedQueue(policy, note_releases=durable)
        self.acks: dict[int, SegmentAcks] = {}
        self.next_stored_seq: int | None = None
        """Messages from here on are in the store only; None when all are in memory."""
        self.stored = 0
        self.stored_bytes = 0
        self.incoming = 0
        self.incoming_bytes = 0
        self.closing = False
        self.armed_ms: int | None = None
        self.unwanted: Callable[[Message], bool] | None = None
        """Tells messages this queue is done with unseen; asked when they come in from the store."""
        self.on_ready: Callable[[], None] | None = None
        self.on_dropped: Callable[[], None] | None = None
        self.on_dead_letters: Callable[[list[Entry]], None] | None = None

    @property
    def total(self) -> int:
        """Every message the queue is responsible for, those being committed included."""
        return self.engine.held + self.stored + self.incoming

    @property
    def total_bytes(self) -> int:
        """The bytes of `total`."""
        return self.engine.held_bytes + self.stored_bytes + self.incoming_bytes

    def counters(self) -> Counters:
        """What the queue holds, by state."""
        return self.engine.counters().beyond_window(self.stored, self.stored_bytes)

    def take_in(
        self, first_seq: int, messages: Sequence[Message], segment: Segment | None, skip: int, now_ms: int
    ) -> None:
        """Let messages in, into memory while the window has room and nothing older waits in the store."""
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
        """The bitmap of a segment, a fresh one if nothing is known of it."""
        acks = self.acks.get(segment.first_seq)
        if acks is None:
            acks = self.acks[segment.first_seq] = SegmentAcks(segment)
        return acks

    def wants_page(self) -> bool:
        """Whether the next messages should come in from the store."""
        if self.next_stored_seq is None or self.engine.held >= self.window.lookahead:
            return False
        return not self.engine.has_ready() or (
            self.engine.visible < self.window.messages // 2 and not self._window_is_full()
        )

    def notify(self) -> None:
        """Tell whoever waits that a receive may find something."""
        if self.on_ready is not None and self.engine.has_ready():
            self.on_ready()

    def _window_is_full(self) -> bool:
        return self.engine.held >= self.window.messages or self.engine.held_bytes >= self.window.size_bytes

    def _leave_in_store(self, segment: Segment, messages: Sequence[Message], skip: int) -> None:
        if self.next_stored_seq is None:
            self.next_stored_seq = segment.first_seq
        self.acks.pop(segment.first_seq, None)  # comes back with its page
        self.stored += segment.count - skip.bit_count()
        self.stored_bytes += segment.size_bytes
        if skip:
            self.stored_bytes -= sum(m.size_bytes for index, m in enumerate(messages) if skip >> index & 1)


class QueueSchedule:
    """The queues by the moment their next lease runs out or their next delayed message becomes available."""

    __slots__ = ("_heap", "_ties")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, StoredQueue]] = []
        self._ties = count()

    def arm(self, queue: StoredQueue) -> None:
        """Make sure the queue is looked at when its next moment comes."""
        due_ms = queue.engine.next_due_ms()
        if due_ms is None or (queue.armed_ms is not None and queue.armed_ms <= due_ms):
            return
        queue.armed_ms = due_ms
        heappush(self._heap, (due_ms, next(self._ties), queue))

    def pop_due(self, now_ms: int) -> StoredQueue | None:
        """The next queue whose moment has come; the caller arms it again."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            due_ms, _, queue = heappop(heap)
            # A queue armed anew for an earlier moment leaves its later one behind.
            if queue.armed_ms == due_ms:
                queue.armed_ms = None
                return queue
        return None

    def next_due_ms(self) -> int | None:
        """No queue is due before this moment."""
        return self._heap[0][0] if self._heap else None

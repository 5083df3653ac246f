"""A queue of a stream: its window in memory, and how much of it lies beyond in the store."""

from collections.abc import Callable, Sequence

from penstock.core.message import Message
from penstock.queue.acks import SegmentAcks
from penstock.queue.counters import Counters
from penstock.queue.entry import Entry, Segment
from penstock.queue.leased_queue import LeasedQueue
from penstock.queue.policy import QueuePolicy, Window


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

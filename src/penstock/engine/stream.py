"""A stream: a log of messages that one or more queues process."""

from collections import deque
from collections.abc import Sequence

from penstock.domain.limits import MIB
from penstock.domain.message import Message
from penstock.engine.dedup import DedupWindow
from penstock.engine.pending import PendingSend
from penstock.engine.queue.entry import Segment, total_bytes
from penstock.engine.store.port import DedupRow, SegmentRow, StreamRecord
from penstock.engine.store.segment_codec import DedupKey, encode_dedup_keys, encode_message, encode_segment
from penstock.engine.stored_queue import StoredQueue

# A segment is read back as a whole, so it is small compared with the window.
SEGMENT_MAX_MESSAGES = 512
SEGMENT_MAX_BYTES = 4 * MIB

# Sequence numbers are reserved in the store in blocks: after a crash the rest of a block is skipped, never reused.
SEQ_BLOCK = 1_000_000


class SegmentBuilder:
    """The messages of one stream that the next commit will make durable."""

    __slots__ = (
        "dedup_expires_ms",
        "dedup_keys",
        "first_seq",
        "messages",
        "records",
        "size_bytes",
        "skips",
        "stream",
    )

    def __init__(self, stream: "Stream", first_seq: int) -> None:
        self.stream = stream
        self.first_seq = first_seq
        self.messages: list[Message] = []
        self.records: list[bytes] = []
        self.size_bytes = 0
        self.skips: dict[int, int] = {}
        self.dedup_keys: list[DedupKey] = []
        self.dedup_expires_ms = 0

    @property
    def full(self) -> bool:
        """Whether the next message starts another segment."""
        return len(self.messages) >= SEGMENT_MAX_MESSAGES or self.size_bytes >= SEGMENT_MAX_BYTES

    def add(self, message: Message) -> None:
        """Append a message; its sequence number is the next of the segment."""
        self.messages.append(message)
        self.records.append(encode_message(message))
        self.size_bytes += message.size_bytes

    def add_all(self, messages: Sequence[Message]) -> None:
        """Append messages that fit."""
        self.messages.extend(messages)
        self.records.extend(map(encode_message, messages))
        self.size_bytes += total_bytes(messages)

    @property
    def free_slots(self) -> int:
        """The number of messages that still fit into this segment."""
        return SEGMENT_MAX_MESSAGES - len(self.messages)

    def skip(self, queue_id: int) -> None:
        """Record that a queue must not get the last message."""
        self.skips[queue_id] = self.skips.get(queue_id, 0) | 1 << (len(self.messages) - 1)

    def remember_all(self, keys: Sequence[DedupKey], expires_ms: int) -> None:
        """Store deduplication ids with the segment."""
        self.dedup_keys += keys
        self.dedup_expires_ms = max(self.dedup_expires_ms, expires_ms)

    def segment(self) -> Segment:
        """Return the finished segment."""
        return Segment(self.first_seq, len(self.messages), self.size_bytes)

    def row(self) -> SegmentRow:
        """Return the segment as a row of the store."""
        frames = encode_segment(self.stream.id, self.first_seq, self.records)
        return SegmentRow(self.stream.id, self.first_seq, len(self.messages), self.size_bytes, frames)

    def dedup_row(self) -> DedupRow:
        """Return the deduplication ids as a row of the store."""
        return DedupRow(self.stream.id, self.first_seq, self.dedup_expires_ms, encode_dedup_keys(self.dedup_keys))


class Stream:
    """The log of one topic, SQS queue or partition, and the queues that read it."""

    __slots__ = (
        "builder",
        "closing",
        "committed_seq",
        "config",
        "dedup",
        "dedup_window_ms",
        "id",
        "name",
        "next_seq",
        "queues",
        "seq_limit",
        "shares",
        "undecided",
    )

    def __init__(self, stream_id: int, name: str, config: bytes, seq_limit: int, dedup_window_ms: int) -> None:
        self.id = stream_id
        self.name = name
        self.config = config
        self.seq_limit = seq_limit
        self.next_seq = max(seq_limit, 1)
        self.committed_seq = self.next_seq
        """Everything before this sequence number is durable."""
        self.queues: dict[int, StoredQueue] = {}
        self.builder: SegmentBuilder | None = None
        self.shares: dict[int, int] = {}
        """The number of queues that need a segment, for segments that two or more need."""
        self.dedup_window_ms = dedup_window_ms
        self.dedup: DedupWindow[DedupKey] | None = DedupWindow(dedup_window_ms) if dedup_window_ms else None
        self.undecided: deque[PendingSend] = deque()
        """Sends with deduplication ids that are not yet durable, in the order of their messages."""
        self.closing = False

    def record(self) -> StreamRecord:
        """Return the stream as a record of the store."""
        return StreamRecord(self.id, self.name, self.config, self.seq_limit)

    def undecided_send_of(self, known: DedupKey) -> PendingSend | None:
        """Return the send that brought a deduplication id, if that is neither durable nor refused yet."""
        for send in self.undecided:
            if known.message_id in send.message_ids:
                return send
        return None

    def decided(self, end_seq: int) -> None:
        """Forget the sends before a sequence number: they are durable or refused."""
        undecided = self.undecided
        while undecided and undecided[0].first_seq < end_seq:
            undecided.popleft()

    def release_share(self, first_seq: int) -> bool:
        """Subtract one from the queues that need a segment; return True if none is left."""
        shares = self.shares.get(first_seq)
        if shares is None:
            return True
        if shares == 2:
            del self.shares[first_seq]
        else:
            self.shares[first_seq] = shares - 1
        return False

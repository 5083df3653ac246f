"""Messages entering a stream: duplicates dropped, grouped into segments, delivered to queues after their commit."""

from collections.abc import Mapping, Sequence

from penstock.domain.message import Message
from penstock.engine.dedup import DedupWindow
from penstock.engine.journal import Journal
from penstock.engine.pending import PendingSend, Receipt
from penstock.engine.queue.entry import total_bytes
from penstock.engine.store.segment_codec import DedupKey
from penstock.engine.stored_queue import QueueSchedule
from penstock.engine.stream import SEGMENT_MAX_BYTES, SegmentBuilder, Stream

Skips = Mapping[int, int]
"""Queue id → a bit for each message of a send that the queue must not get."""


def drop_duplicates(
    stream: Stream, messages: Sequence[Message], send: PendingSend, now_ms: int
) -> tuple[Sequence[Message], list[DedupKey]]:
    """Return the messages not seen within the window and their deduplication ids; `send` gets the receipts."""
    dedup = stream.dedup
    assert dedup is not None
    ids = [message.dedup_id for message in messages]
    if all(ids):
        keys = [DedupKey(m.dedup_id, m.id, seq) for seq, m in enumerate(messages, stream.next_seq)]
        if dedup.remember_new(ids, keys, now_ms):
            send.expect(messages, stream.next_seq)
            return messages, keys
    return _drop_one_by_one(stream, dedup, messages, send, now_ms)


def _drop_one_by_one(
    stream: Stream, dedup: DedupWindow[DedupKey], messages: Sequence[Message], send: PendingSend, now_ms: int
) -> tuple[Sequence[Message], list[DedupKey]]:
    fresh: list[Message] = []
    keys: list[DedupKey] = []
    duplicates: dict[int, DedupKey] = {}
    for index, message in enumerate(messages):
        if dedup_id := message.dedup_id:
            known = dedup.find(dedup_id, now_ms)
            if known is not None:
                duplicates[index] = known
                continue
            key = DedupKey(dedup_id, message.id, stream.next_seq + len(fresh))
            dedup.remember(dedup_id, key, now_ms)
            keys.append(key)
        fresh.append(message)
    if duplicates:
        _answer_duplicates(stream, messages, duplicates, send)
    else:
        send.expect(messages, stream.next_seq)
    return fresh, keys


def _answer_duplicates(
    stream: Stream, messages: Sequence[Message], duplicates: dict[int, DedupKey], send: PendingSend
) -> None:
    """Give a duplicate the receipt of its original, which is valid only once the original is durable."""
    receipts: list[Receipt] = []
    seq = stream.next_seq
    for index, message in enumerate(messages):
        known = duplicates.get(index)
        if known is None:
            receipts.append(Receipt(message.id, seq))
            seq += 1
            continue
        receipts.append(Receipt(known.message_id, known.seq))
        origin = stream.undecided_send_of(known)
        if origin is not None:
            send.originals.append(origin)
    send.answer(receipts, stream.next_seq)


class Arrivals:
    """Appends messages to streams, through the journal."""

    def __init__(self, journal: Journal, schedule: QueueSchedule) -> None:
        self._journal = journal
        self._schedule = schedule

    def append(
        self, stream: Stream, messages: Sequence[Message], skips: Skips, keys: list[DedupKey], now_ms: int
    ) -> None:
        """Put messages into the next commit, and count them as incoming for the queues."""
        size_bytes = total_bytes(messages)
        if keys:
            # They go with the first of the segments of these messages: all are part of one commit.
            self._journal.builder(stream).remember_all(keys, now_ms + stream.dedup_window_ms)
        if skips or size_bytes > SEGMENT_MAX_BYTES:
            self._append_one_by_one(stream, messages, skips)
        else:
            self._append_runs(stream, messages)
        for queue in stream.queues.values():
            queue.incoming += len(messages)
            queue.incoming_bytes += size_bytes

    def _append_runs(self, stream: Stream, messages: Sequence[Message]) -> None:
        start = 0
        while start < len(messages):
            builder = self._journal.builder(stream)
            run = messages[start : start + builder.free_slots]
            builder.add_all(run)
            stream.next_seq += len(run)
            start += len(run)

    def _append_one_by_one(self, stream: Stream, messages: Sequence[Message], skips: Skips) -> None:
        for index, message in enumerate(messages):
            builder = self._journal.builder(stream)
            builder.add(message)
            for queue_id, bits in skips.items():
                if bits >> index & 1:
                    builder.skip(queue_id)
            stream.next_seq += 1

    def complete(self, builder: SegmentBuilder, now_ms: int) -> None:
        """Add a durable segment's messages to its queues."""
        stream = builder.stream
        segment = builder.segment()
        _count_arrived(builder)
        end_seq = segment.first_seq + segment.count
        stream.decided(end_seq)
        stream.committed_seq = max(stream.committed_seq, end_seq)
        everything = (1 << segment.count) - 1
        for queue_id, bits in builder.skips.items():
            if bits == everything and queue_id in stream.queues:
                stream.queues[queue_id].acks.pop(segment.first_seq, None)
        concerned = [
            queue
            for queue in stream.queues.values()
            if queue.start_seq <= segment.first_seq and builder.skips.get(queue.id, 0) != everything
        ]
        if not concerned:
            self._journal.batch.drop_segments.append((stream.id, segment.first_seq))
        elif len(concerned) > 1:
            stream.shares[segment.first_seq] = len(concerned)
        for queue in concerned:
            queue.add(segment.first_seq, builder.messages, segment, builder.skips.get(queue.id, 0), now_ms)
            self._schedule.arm(queue)
            queue.notify()

    def abandon(self, builder: SegmentBuilder) -> None:
        """Forget a refused segment's deduplication ids and skips."""
        stream = builder.stream
        _count_arrived(builder)
        stream.decided(builder.first_seq + len(builder.messages))
        if stream.dedup is not None:
            for key in builder.dedup_keys:
                stream.dedup.forget(key.key)
        for queue_id in builder.skips:
            if queue_id in stream.queues:
                stream.queues[queue_id].acks.pop(builder.first_seq, None)


def _count_arrived(builder: SegmentBuilder) -> None:
    """Subtract the messages of a segment, committed or refused, from the incoming counts."""
    for queue in builder.stream.queues.values():
        # A queue created while a segment was being committed never counted it.
        queue.incoming = max(0, queue.incoming - len(builder.messages))
        queue.incoming_bytes = max(0, queue.incoming_bytes - builder.size_bytes)

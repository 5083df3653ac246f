"""Messages on their way into a stream: duplicates dropped, gathered into segments, landed after their commit."""

from collections.abc import Mapping, Sequence

from penstock.core.message import Message
from penstock.queue.entry import total_bytes
from penstock.queue.journal import Journal
from penstock.queue.pending import PendingSend, Receipt
from penstock.queue.schedule import Schedule
from penstock.queue.stream import SEGMENT_MAX_BYTES, Remembered, SegmentBuilder, Stream

Skips = Mapping[int, int]
"""Queue id → a bit for each message of a send that this queue is not concerned with."""


def drop_duplicates(
    stream: Stream, messages: Sequence[Message], send: PendingSend, now_ms: int, *, keep_origin: bool
) -> list[Message]:
    """The messages not seen within the window; receipts for all of them go into the send.

    `keep_origin`: a duplicate's answer waits for the commit of the send that brought the original.
    """
    assert stream.dedup is not None
    find, remember, undecided = stream.dedup.find, stream.dedup.remember, stream.undecided
    receipts = send.receipts
    fresh: list[Message] = []
    seq = stream.next_seq
    for message in messages:
        dedup_id = message.dedup_id
        known = find(dedup_id, now_ms) if dedup_id else None
        if known is not None:
            receipts.append(Receipt(known.message_id, known.seq, duplicate=True))
            origin = undecided.get(dedup_id)
            if origin is not None and origin is not send:
                send.originals.append(origin)
            continue
        if dedup_id:
            remember(dedup_id, Remembered(message.id, seq), now_ms)
            if keep_origin:
                undecided[dedup_id] = send
        receipts.append(Receipt(message.id, seq))
        fresh.append(message)
        seq += 1
    return fresh


class Arrivals:
    """Appends messages to streams, through the journal."""

    def __init__(self, journal: Journal, schedule: Schedule) -> None:
        self._journal = journal
        self._schedule = schedule

    def append(self, stream: Stream, messages: Sequence[Message], skips: Skips, now_ms: int, *, dedup: bool) -> None:
        """Put messages into the next commit, and count them as on their way to the queues."""
        dedup = dedup and stream.dedup is not None
        size_bytes = total_bytes(messages)
        if skips or size_bytes > SEGMENT_MAX_BYTES:
            self._append_one_by_one(stream, messages, skips, now_ms, dedup=dedup)
        else:
            self._append_runs(stream, messages, now_ms, dedup=dedup)
        for queue in stream.queues.values():
            queue.incoming += len(messages)
            queue.incoming_bytes += size_bytes

    def _append_runs(self, stream: Stream, messages: Sequence[Message], now_ms: int, *, dedup: bool) -> None:
        start = 0
        while start < len(messages):
            builder = self._journal.builder(stream)
            run = messages[start : start + builder.room]
            builder.add_all(run)
            if dedup:
                builder.remember_all(run, stream.next_seq, now_ms + stream.dedup_window_ms)
            stream.next_seq += len(run)
            start += len(run)

    def _append_one_by_one(
        self, stream: Stream, messages: Sequence[Message], skips: Skips, now_ms: int, *, dedup: bool
    ) -> None:
        for index, message in enumerate(messages):
            builder = self._journal.builder(stream)
            builder.add(message)
            for queue_id, bits in skips.items():
                if bits >> index & 1:
                    builder.skip(queue_id)
            if dedup and message.dedup_id:
                expires_ms = now_ms + stream.dedup_window_ms
                builder.remember(message.dedup_id, message.id, stream.next_seq, expires_ms)
            stream.next_seq += 1

    def land(self, builder: SegmentBuilder, now_ms: int) -> None:
        """A segment is durable: its queues get its messages."""
        stream = builder.stream
        segment = builder.segment()
        _count_arrived(builder)
        for key in builder.dedup_keys:
            stream.undecided.pop(key.key, None)
        stream.committed_seq = max(stream.committed_seq, segment.first_seq + segment.count)
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
            queue.take_in(segment.first_seq, builder.messages, segment, builder.skips.get(queue.id, 0), now_ms)
            self._schedule.arm(queue)
            queue.notify()

    def abandon(self, builder: SegmentBuilder) -> None:
        """A segment was refused: forget its deduplication ids and what its queues were to skip."""
        stream = builder.stream
        _count_arrived(builder)
        for key in builder.dedup_keys:
            stream.undecided.pop(key.key, None)
            if stream.dedup is not None:
                stream.dedup.forget(key.key)
        for queue_id in builder.skips:
            if queue_id in stream.queues:
                stream.queues[queue_id].acks.pop(builder.first_seq, None)


def _count_arrived(builder: SegmentBuilder) -> None:
    """What was on its way to the queues of a stream is there, or will never be."""
    for queue in builder.stream.queues.values():
        # A queue made while a segment was on its way never counted that one.
        queue.incoming = max(0, queue.incoming - len(builder.messages))
        queue.incoming_bytes = max(0, queue.incoming_bytes - builder.size_bytes)

"""Which messages of a segment one queue is done with."""

from collections.abc import Iterable

import msgspec

from penstock.queue.entry import Entry, Segment


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

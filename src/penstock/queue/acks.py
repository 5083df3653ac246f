"""Which messages of a segment one queue is done with."""

import msgspec

from penstock.queue.entry import Segment


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

    def unmark(self, seq: int, size_bytes: int) -> None:
        """The queue is not done with this message after all."""
        self.dead &= ~(1 << (seq - self.segment.first_seq))
        self.dead_count -= 1
        self.dead_bytes -= size_bytes

    @property
    def done(self) -> bool:
        """Whether nothing of the segment is left for the queue."""
        return self.dead_count >= self.segment.count

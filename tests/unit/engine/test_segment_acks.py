"""Which messages of a segment a queue is done with."""

from penstock.domain.message import Message
from penstock.engine.queue.entry import Entry, Segment
from penstock.engine.stored_queue import SegmentAcks

SEGMENT = Segment(first_seq=100, count=20, size_bytes=210)


def entry(seq: int) -> Entry:
    return Entry(seq, Message(f"m{seq}", b"", 0, seq - 99), SEGMENT)


def test_messages_marked_together_count_as_each_marked_alone() -> None:
    together, alone = SegmentAcks(SEGMENT), SegmentAcks(SEGMENT)
    for seqs in ([103, 100, 119], [], [104]):
        together.mark_all(map(entry, seqs))
        for seq in seqs:
            alone.mark(seq, entry(seq).message.size_bytes)
        assert together == alone
    assert (together.dead_count, together.dead_bytes) == (4, 4 + 1 + 20 + 5)


def test_a_segment_is_done_when_all_of_it_is_marked() -> None:
    acks = SegmentAcks(SEGMENT)
    done = []
    for seqs in (range(100, 119), range(119, 120)):
        acks.mark_all(map(entry, seqs))
        done.append(acks.done)
    assert done == [False, True]
    assert acks.dead_bytes == SEGMENT.size_bytes
    acks.unmark(119, entry(119).message.size_bytes)
    assert acks.dead.bit_count() == 19

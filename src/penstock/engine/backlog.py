"""The backlog of a queue: messages beyond its window, read from the store in pages."""

from typing import TypeGuard

import msgspec

from penstock.domain.limits import MIB
from penstock.domain.message import Message
from penstock.engine.journal import Journal
from penstock.engine.queue.entry import Entry, Segment, held_bytes
from penstock.engine.store.port import DamagedRow, DeliveryRow, Store, StoredSegment
from penstock.engine.store.segment_codec import Damage, decode_bitmap, decode_segment
from penstock.engine.stored_queue import SegmentAcks, StoredQueue
from penstock.engine.stream import SEGMENT_MAX_MESSAGES, Stream

_PAGE_MESSAGES = 2000
_PAGE_BYTES = 8 * MIB


class BacklogPage(msgspec.Struct, frozen=True):
    """Segments from `from_seq` on; everything before `horizon_seq` was durable when the read began."""

    from_seq: int
    horizon_seq: int
    segments: list[StoredSegment]
    deliveries: dict[int, DeliveryRow]

    @classmethod
    def read(cls, store: Store, queue: StoredQueue, horizon_seq: int) -> "BacklogPage":
        """Read a page; safe in another thread, because it uses only arguments and values that do not change."""
        from_seq = queue.next_stored_seq or 0
        segments = store.read(queue.id, from_seq, min(_PAGE_MESSAGES, queue.window.messages), _PAGE_BYTES)
        deliveries: list[DeliveryRow] = []
        if segments:
            deliveries = store.deliveries(
                queue.id, segments[0].first_seq, segments[-1].first_seq + segments[-1].count - 1
            )
        return cls(from_seq, horizon_seq, segments, {row.seq: row for row in deliveries})

    @property
    def next_seq(self) -> int:
        """Where the next page starts."""
        if not self.segments:
            return self.horizon_seq
        return self.segments[-1].first_seq + self.segments[-1].count


def peek_stored(store: Store, queue: StoredQueue, after_seq: int, limit: int) -> list[Entry]:
    """Return messages beyond the window, in order and unchanged; damaged ones are skipped."""
    stored_from = queue.next_stored_seq
    if stored_from is None:
        return []
    # The segment that contains the cursor starts at most one segment length before it.
    from_seq = max(stored_from, after_seq + 1 - SEGMENT_MAX_MESSAGES)
    found: list[Entry] = []
    for stored in store.read(queue.id, from_seq, limit + SEGMENT_MAX_MESSAGES, _PAGE_BYTES):
        dead = (decode_bitmap(stored.dead) or 0) if stored.dead is not None else 0
        decoded = decode_segment(queue.stream_id, stored.first_seq, stored.count, stored.payload)
        for index, message in enumerate(decoded):
            seq = stored.first_seq + index
            if seq > after_seq and not dead >> index & 1 and not isinstance(message, Damage):
                found.append(Entry(seq, message, None, message.deliver_at_ms))
    return found[:limit]


def install_page(queue: StoredQueue, stream: Stream, page: BacklogPage, journal: Journal, now_ms: int) -> int:
    """Add a page's messages to the window; return how many were damaged and set aside."""
    if queue.next_stored_seq != page.from_seq:
        return 0  # purged or paged in the meantime
    damaged = 0
    for stored in page.segments:
        # A read may see a commit before the ledger does; its messages are added when the ledger does.
        if stored.first_seq < stream.committed_seq:
            damaged += _install_segment(queue, stream, stored, page.deliveries, journal, now_ms)
    if page.next_seq >= stream.committed_seq:
        queue.next_stored_seq = None
        queue.stored = queue.stored_bytes = 0
    else:
        queue.next_stored_seq = page.next_seq
    return damaged


def _install_segment(
    queue: StoredQueue,
    stream: Stream,
    stored: StoredSegment,
    deliveries: dict[int, DeliveryRow],
    journal: Journal,
    now_ms: int,
) -> int:
    segment = Segment(stored.first_seq, stored.count, stored.size_bytes)
    # A bitmap that fails its checksum counts as empty: redelivery is allowed, loss is not.
    dead = (decode_bitmap(stored.dead) or 0) if stored.dead is not None else 0
    entries: list[Entry] = []
    damage: list[DamagedRow] = []
    unwanted = 0
    acks = SegmentAcks(segment)
    decoded = decode_segment(stream.id, segment.first_seq, segment.count, stored.payload)
    if not (dead or deliveries or queue.unwanted) and _is_sound(decoded):
        _add_to_window(
            queue, [Entry(seq, m, segment, m.deliver_at_ms) for seq, m in enumerate(decoded, segment.first_seq)], now_ms
        )
        return 0
    for seq, message in enumerate(decoded, segment.first_seq):
        was_dead = bool(dead >> (seq - segment.first_seq) & 1)
        if isinstance(message, Damage):
            acks.mark(seq, 0)
            if not was_dead:
                damage.append(DamagedRow(stream.id, segment.first_seq, seq, message.reason, message.payload, now_ms))
            continue
        if was_dead:
            acks.mark(seq, message.size_bytes)
            continue
        if queue.unwanted is not None and queue.unwanted(message):
            acks.mark(seq, message.size_bytes)
            unwanted += 1
            continue
        entry = Entry(seq, message, segment, message.deliver_at_ms)
        delivery = deliveries.get(seq)
        if delivery is not None:
            entry.receive_count = delivery.receive_count
            entry.first_received_ms = delivery.first_received_ms
            acks.has_deliveries = True
            if delivery.deadline_ms > now_ms:
                entry.lease_id, entry.leased_ms = delivery.lease_id, delivery.leased_ms
                entry.deadline_ms = delivery.deadline_ms
        entries.append(entry)
    if acks.dead or acks.has_deliveries:
        queue.acks[segment.first_seq] = acks
    if damage:
        journal.batch.damaged.extend(damage)
    if damage or unwanted:
        journal.touch(stream, queue, acks)
    queue.stored = max(0, queue.stored - len(damage) - unwanted)
    _add_to_window(queue, entries, now_ms)
    return len(damage)


def _is_sound(decoded: list[Message | Damage]) -> TypeGuard[list[Message]]:
    return Damage not in map(type, decoded)


def _add_to_window(queue: StoredQueue, entries: list[Entry], now_ms: int) -> None:
    queue.stored = max(0, queue.stored - len(entries))
    queue.stored_bytes = max(0, queue.stored_bytes - held_bytes(entries))
    if entries and entries[0].seq < queue.reopened_seq:
        queue.engine.add_old(entries, now_ms)
    else:
        queue.engine.add(entries, now_ms)

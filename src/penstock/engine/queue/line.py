"""The line: the waiting messages of a queue, and whose turn it is.

Messages without a group wait in `_fresh` (in order of arrival) or `_returned` (a heap by sequence, for those that came
back). Messages of a group wait in its lane; lanes that can be received from take turns in `ring`. Delayed messages of
both kinds are also in `_delayed`, a heap by the time they become available.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from sys import maxsize

import msgspec

from penstock.engine.queue.entry import DELAYED, GONE, WAITING, Entry

# With fewer used slots, moving the list is not worth it.
_COMPACT_AT = 32


def _seq(entry: Entry | None) -> int:
    # Slots before the head are None, but bisect only looks at slots from the head on.
    return entry.seq if entry is not None else -1


class MessageLane(msgspec.Struct, gc=False):
    """The waiting messages of one group: a list with a moving head, small for the many groups with one message."""

    group: str
    entries: list[Entry | None]
    head: int = 0
    in_flight: int = 0
    ready: bool = False
    """Whether the lane is in the ring of lanes that can be received from."""
    out: list[int] | None = None
    """The sequences in flight, in order; None if only one is, or if they are not known."""

    def first(self) -> Entry | None:
        """Return the next message, delayed or not, after dropping settled ones."""
        entries = self.entries
        while self.head < len(entries):
            entry = entries[self.head]
            if entry is not None and entry.state <= WAITING:
                return entry
            self._advance()
        return None

    def pop(self) -> None:
        """Remove the first message."""
        self._advance()

    def put_back(self, entry: Entry) -> None:
        """Return a message to its position."""
        if self.head and (self.head == len(self.entries) or _seq(self.entries[self.head]) > entry.seq):
            self.head -= 1
            self.entries[self.head] = entry
        else:
            self.entries.insert(bisect_left(self.entries, entry.seq, lo=self.head, key=_seq), entry)

    def limit_seq(self) -> int:
        """Return the sequence that messages must precede to be received: that of the first message in flight."""
        if not self.in_flight:
            return maxsize
        return self.out[0] if self.out else 0

    def leave(self, seqs: list[int]) -> None:
        """Count messages as in flight."""
        if self.out is not None:
            for seq in seqs:
                insort(self.out, seq)
        elif not self.in_flight and len(seqs) > 1:
            self.out = seqs
        self.in_flight += len(seqs)

    def come_home(self, seq: int) -> None:
        """Count a message as no longer in flight."""
        self.in_flight -= 1
        if not self.in_flight:
            self.out = None
        elif self.out is not None:
            self.out.remove(seq)

    def waiting(self) -> list[Entry]:
        """Return all messages that wait here, in order."""
        return [entry for entry in self.entries[self.head :] if entry is not None and entry.state <= WAITING]

    def _advance(self) -> None:
        self.entries[self.head] = None
        self.head += 1
        if self.head == len(self.entries):
            self.entries.clear()
            self.head = 0
        elif self.head >= _COMPACT_AT and self.head * 2 > len(self.entries):
            del self.entries[: self.head]
            self.head = 0


class Line:
    """The waiting messages and their order, without leases or limits."""

    __slots__ = ("_delayed", "_fresh", "_returned", "_ties", "delayed", "grouped", "lanes", "ring", "visible")

    def __init__(self, *, grouped: bool) -> None:
        self.grouped = grouped
        self._fresh: deque[Entry] = deque()
        # The tie number keeps a heap from comparing entries when a settled one and its replacement share a sequence.
        self._ties = count()
        self._returned: list[tuple[int, int, Entry]] = []
        self._delayed: list[tuple[int, int, int, Entry]] = []
        self.lanes: dict[str, MessageLane] = {}
        self.ring: deque[MessageLane] = deque()
        self.visible = 0
        self.delayed = 0

    def join_all(self, entries: Sequence[Entry], now_ms: int) -> None:
        """Add messages at the end, in order of their sequence."""
        for entry in entries:
            if entry.available_ms > now_ms:
                self._join_one_by_one(entries, now_ms)
                return
        self.visible += len(entries)
        if not self.grouped:
            self._fresh.extend(entries)
            return
        lane_of = self._lane_of
        for entry in entries:
            if group := entry.message.group:
                lane = lane_of(group)
                lane.entries.append(entry)
                if not lane.ready and (lane.out or not lane.in_flight):
                    self.place(lane)
            else:
                self._fresh.append(entry)

    def _join_one_by_one(self, entries: Sequence[Entry], now_ms: int) -> None:
        for entry in entries:
            self.join(entry, now_ms)

    def join(self, entry: Entry, now_ms: int) -> None:
        """Add a message at the end."""
        grouped = self.grouped and entry.message.group
        if entry.available_ms > now_ms:
            self._delay(entry)
            if grouped:
                self._lane_of(entry.message.group).entries.append(entry)
            return
        self.visible += 1
        if not grouped:
            self._fresh.append(entry)
            return
        lane = self._lane_of(entry.message.group)
        lane.entries.append(entry)
        if not lane.ready and (lane.out or not lane.in_flight):
            self.place(lane)

    def restore_lease(self, entry: Entry) -> None:
        """Block the lane of a message that was leased before a restart."""
        if self.grouped and entry.message.group:
            lane = self._lane_of(entry.message.group)
            lane.out = lane.out or []
            lane.leave([entry.seq])

    def rejoin(self, entry: Entry, now_ms: int, delay_ms: int) -> None:
        """Return a message that was leased to its position, and free its lane."""
        entry.available_ms = now_ms + delay_ms
        if delay_ms > 0:
            self._delay(entry)
        else:
            entry.state = WAITING
            self.visible += 1
        if self.grouped and entry.message.group:
            self.lanes[entry.message.group].put_back(entry)
            self.free_lane(entry)
        elif delay_ms <= 0:
            self.put_back_ungrouped(entry)

    def pop_ungrouped(self) -> Entry | None:
        """Remove and return the oldest message without a group; it still counts as visible."""
        fresh, returned = self._fresh, self._returned
        while fresh or returned:
            if returned and (not fresh or returned[0][0] < fresh[0].seq):
                entry = heappop(returned)[2]
            else:
                entry = fresh.popleft()
            if entry.state is WAITING:
                return entry
        return None

    def put_back_ungrouped(self, entry: Entry) -> None:
        """Return a message without a group that was taken."""
        heappush(self._returned, (entry.seq, next(self._ties), entry))

    def pull_out(self, entry: Entry) -> Entry:
        """Take a message from any position: its slot is skipped later, and a copy replaces it outside."""
        if entry.state is DELAYED:
            self.delayed -= 1
        else:
            self.visible -= 1
        entry.state = GONE
        if self.grouped and entry.message.group:
            self.lanes[entry.message.group].leave([entry.seq])
        return Entry(
            seq=entry.seq,
            message=entry.message,
            segment=entry.segment,
            available_ms=entry.available_ms,
            lease_id=entry.lease_id,
            receive_count=entry.receive_count,
            first_received_ms=entry.first_received_ms,
        )

    def admit_due(self, now_ms: int) -> None:
        """Make delayed messages available that are due."""
        delayed = self._delayed
        while delayed and delayed[0][0] <= now_ms:
            entry = heappop(delayed)[3]
            if entry.state is not DELAYED:
                continue
            entry.state = WAITING
            self.delayed -= 1
            self.visible += 1
            if self.grouped and entry.message.group:
                self.place(self.lanes[entry.message.group])
            else:
                self.put_back_ungrouped(entry)

    def next_available_ms(self) -> int | None:
        """Return when the next delayed message becomes available."""
        return self._delayed[0][0] if self._delayed else None

    def first_fresh(self) -> Entry | None:
        """Return the oldest message without a group that was never leased."""
        fresh = self._fresh
        while fresh and fresh[0].state is not WAITING:
            fresh.popleft()
        return fresh[0] if fresh else None

    def pop_fresh(self) -> None:
        """Remove the message that `first_fresh` returned."""
        self._fresh.popleft()

    def place(self, lane: MessageLane, *, ahead: bool = False) -> None:
        """Put a lane into the ring if its first message can be received; drop the lane if it is empty."""
        if lane.ready or (lane.in_flight and not lane.out):
            return
        first = lane.first()
        if first is None:
            if not lane.in_flight:
                self.lanes.pop(lane.group, None)
        elif first.state is WAITING and first.seq < lane.limit_seq():
            lane.ready = True
            if ahead:
                self.ring.appendleft(lane)
            else:
                self.ring.append(lane)

    def free_lane(self, entry: Entry) -> None:
        """Release the lane of a message that was leased or settling."""
        if self.grouped and entry.message.group:
            lane = self.lanes[entry.message.group]
            lane.come_home(entry.seq)
            self.place(lane)

    def has_ready(self) -> bool:
        """Return whether a message can be received now."""
        return bool(self._fresh or self._returned or self.ring)

    def waiting(self) -> Iterator[Entry]:
        """Yield all waiting messages, delayed or not, in no particular order."""
        yield from (entry for entry in self._fresh if entry.state is WAITING)
        yield from (entry for _, _, entry in self._returned if entry.state is WAITING)
        for _, _, _, entry in self._delayed:
            if entry.state is DELAYED and not (self.grouped and entry.message.group):
                yield entry
        for lane in self.lanes.values():
            yield from lane.waiting()

    def clear(self) -> None:
        """Drop all messages."""
        for entry in self.waiting():
            entry.state = GONE
        self._fresh.clear()
        self._returned.clear()
        self._delayed.clear()
        self.lanes.clear()
        self.ring.clear()
        self.visible = self.delayed = 0

    def _lane_of(self, group: str) -> MessageLane:
        lane = self.lanes.get(group)
        if lane is None:
            lane = self.lanes[group] = MessageLane(group, [])
        return lane

    def _delay(self, entry: Entry) -> None:
        entry.state = DELAYED
        self.delayed += 1
        heappush(self._delayed, (entry.available_ms, entry.seq, next(self._ties), entry))

"""A lane: the waiting messages of one group, in order."""

from bisect import bisect_left

import msgspec

from penstock.queue.entry import WAITING, Entry

# Below this many spent slots the list is not worth moving.
_COMPACT_AT = 32


def _seq(entry: Entry | None) -> int:
    # Slots before the head are None, but bisect is only asked about slots from the head on.
    return entry.seq if entry is not None else -1


class Lane(msgspec.Struct, gc=False):
    """A group's queue: a list with a moving head, which stays small for the many groups that hold one message."""

    group: str
    entries: list[Entry | None]
    head: int = 0
    in_flight: int = 0
    ready: bool = False
    """Whether the lane stands in the ring of lanes that a receive may take from."""

    def first(self) -> Entry | None:
        """The message whose turn it is, delayed or not; settled ones that still stand in line are dropped."""
        entries = self.entries
        while self.head < len(entries):
            entry = entries[self.head]
            if entry is not None and entry.state <= WAITING:
                return entry
            self._advance()
        return None

    def pop(self) -> None:
        """Take the first message out."""
        self._advance()

    def put_back(self, entry: Entry) -> None:
        """Return a message to its place in the order."""
        if self.head and (self.head == len(self.entries) or _seq(self.entries[self.head]) > entry.seq):
            self.head -= 1
            self.entries[self.head] = entry
        else:
            self.entries.insert(bisect_left(self.entries, entry.seq, lo=self.head, key=_seq), entry)

    def waiting(self) -> list[Entry]:
        """All messages that wait here, in order."""
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

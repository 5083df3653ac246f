"""The leases of a queue, with one heap of deadlines instead of a timer per message."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from penstock.engine.queue.entry import Entry

# A smaller heap is not worth rebuilding.
_SLACK = 1024


class QueueLeases:
    """The live leases by id, and when the next one expires.

    Leases granted together have consecutive ids and share one heap entry. A settled or extended lease leaves its old
    entry behind, which is skipped when it comes up. The heap is rebuilt when most of it is stale, so memory use follows
    the live leases.
    """

    __slots__ = ("_heap", "_last_id", "live")

    def __init__(self, last_id: int = 0) -> None:
        self.live: dict[int, Entry] = {}
        # A time, and the first and last id of the leases that may expire then.
        self._heap: list[tuple[int, int, int]] = []
        self._last_id = last_id

    def __len__(self) -> int:
        return len(self.live)

    def grant(self, entries: Sequence[Entry], deadline_ms: int) -> None:
        """Lease messages, each under a new id."""
        first_id = self._last_id + 1
        live, lease_id = self.live, self._last_id
        for entry in entries:
            lease_id += 1
            entry.lease_id = lease_id
            entry.deadline_ms = deadline_ms
            live[lease_id] = entry
        self._last_id = lease_id
        self._note(deadline_ms, first_id, lease_id)

    def restore(self, entry: Entry) -> None:
        """Restore a lease with its own id and deadline."""
        self.live[entry.lease_id] = entry
        self._note(entry.deadline_ms, entry.lease_id, entry.lease_id)

    def end(self, entry: Entry) -> None:
        """End a live lease."""
        del self.live[entry.lease_id]

    def move_deadline(self, entry: Entry, deadline_ms: int) -> None:
        """Change the deadline of a live lease."""
        earlier = deadline_ms < entry.deadline_ms
        entry.deadline_ms = deadline_ms
        if earlier:
            self._note(deadline_ms, entry.lease_id, entry.lease_id)

    def next_deadline_ms(self) -> int | None:
        """Return a time before which no lease expires."""
        return self._heap[0][0] if self._heap else None

    def pop_expired(self, now_ms: int) -> Entry | None:
        """End and return one expired lease, or return None."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            moment_ms, lease_id, last_id = heap[0]
            if lease_id < last_id:
                heapreplace(heap, (moment_ms, lease_id + 1, last_id))
            else:
                heappop(heap)
            entry = self.live.get(lease_id)
            if entry is None:
                continue
            if entry.deadline_ms > now_ms:
                heappush(heap, (entry.deadline_ms, lease_id, lease_id))
                continue
            del self.live[lease_id]
            return entry
        return None

    def clear(self) -> None:
        """Drop all leases; their ids are never granted again."""
        self.live.clear()
        self._heap.clear()

    def _note(self, moment_ms: int, first_id: int, last_id: int) -> None:
        heappush(self._heap, (moment_ms, first_id, last_id))
        if len(self._heap) > 2 * len(self.live) + _SLACK:
            self._heap = [(entry.deadline_ms, lease_id, lease_id) for lease_id, entry in self.live.items()]
            heapify(self._heap)

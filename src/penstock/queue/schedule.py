"""When each queue has something timed to do: one heap for all of them, and nothing for those that are idle."""

from heapq import heappop, heappush
from itertools import count

from penstock.queue.stored_queue import StoredQueue


class Schedule:
    """The queues by the moment their next lease runs out or their next delayed message becomes available."""

    __slots__ = ("_heap", "_ties")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, StoredQueue]] = []
        self._ties = count()

    def arm(self, queue: StoredQueue) -> None:
        """Make sure the queue is looked at when its next moment comes."""
        due_ms = queue.engine.next_due_ms()
        if due_ms is None or (queue.armed_ms is not None and queue.armed_ms <= due_ms):
            return
        queue.armed_ms = due_ms
        heappush(self._heap, (due_ms, next(self._ties), queue))

    def pop_due(self, now_ms: int) -> StoredQueue | None:
        """The next queue whose moment has come; the caller arms it again."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            due_ms, _, queue = heappop(heap)
            # A queue armed anew for an earlier moment leaves its later one behind.
            if queue.armed_ms == due_ms:
                queue.armed_ms = None
                return queue
        return None

    def next_due_ms(self) -> int | None:
        """No queue is due before this moment."""
        return self._heap[0][0] if self._heap else None

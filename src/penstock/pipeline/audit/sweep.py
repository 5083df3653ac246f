"""One group in the order of time: which deliveries began while an earlier job held them back. Pure.

Of the jobs that hold something back at a moment only the one that stands first matters, so a heap by position will do:
time goes on, and one whose hold is over never comes back.
"""

from heapq import heappop, heappush
from typing import NamedTuple

from penstock.domain.order import Position


class Hold(NamedTuple):
    """A job that holds back those behind it, from some moment on."""

    position: Position
    status: str
    from_ms: int
    strict_until_ms: int | None
    """For BLOCK_ON_ERROR jobs behind it."""
    next_until_ms: int | None
    """For NEXT_ON_ERROR jobs behind it."""


class Delivery(NamedTuple):
    """An attempt that begins."""

    position: Position
    at_ms: int
    is_strict: bool
    """Whether its job is BLOCK_ON_ERROR, else it is NEXT_ON_ERROR."""


class GroupSweep:
    """Takes the holds and deliveries of one group in order of time; of the same moment the deliveries first."""

    def __init__(self, tolerance_ms: int = 0) -> None:
        self._tolerance_ms = tolerance_ms
        # The count settles ties: a damaged table may have a job twice.
        self._count = 0
        self._strict: list[tuple[Position, int, int, Hold]] = []
        self._next: list[tuple[Position, int, int, Hold]] = []

    def begin_hold(self, hold: Hold) -> None:
        """From now on it counts."""
        self._count += 1
        if hold.strict_until_ms is not None:
            heappush(self._strict, (hold.position, hold.strict_until_ms, self._count, hold))
        if hold.next_until_ms is not None:
            heappush(self._next, (hold.position, hold.next_until_ms, self._count, hold))

    def overtaken(self, delivery: Delivery) -> Hold | None:
        """The first job of those that a delivery should have waited for, if there is one."""
        heap = self._strict if delivery.is_strict else self._next
        while heap and heap[0][1] <= delivery.at_ms + self._tolerance_ms:
            heappop(heap)
        if heap and heap[0][0] < delivery.position:
            return heap[0][3]
        return None

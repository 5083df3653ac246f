"""A distribution in fixed buckets: cheap to add to, exact to merge.

The heaviest keys of an endless stream in bounded memory: the space-saving sketch of Metwally, Agrawal and El Abbadi.

With `capacity` counters and a stream of total weight W, for every key the sketch holds

    true weight  <=  `weight`  <=  true weight + `error`,    and    error <= W / capacity,

and every key whose true weight is more than W / capacity is held. Weights are whole numbers, so this is exact.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappush, heapreplace

import msgspec


class Histogram:
    """How many values fell into each bucket, and what they add up to; a value on a bound is below it."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.total = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    @property
    def mean(self) -> float:
        """The average value, 0 if there was none."""
        count = self.count
        return self.total / count if count else 0.0

    def merge(self, other: "Histogram") -> None:
        """Take in what another histogram with the same bounds has counted."""
        if tuple(other.bounds) != tuple(self.bounds):
            raise ValueError(f"histograms of different bounds do not merge: {self.bounds} and {other.bounds}")
        self._counts = [mine + theirs for mine, theirs in zip(self._counts, other._counts, strict=True)]
        self.total += other.total

    def cumulative(self) -> list[int]:
        """Per bound how many values are at or below it; the last entry is all of them."""
        running = 0
        sums: list[int] = []
        for count in self._counts:
            running += count
            sums.append(running)
        return sums


class Heavy(msgspec.Struct, frozen=True):
    """A key the sketch holds: its weight, and by how much that may be too large."""

    key: str
    weight: int
    error: int


class TopK:
    """Adds weights to keys; a new key takes the place of the lightest one when all places are taken."""

    __slots__ = ("_capacity", "_errors", "_lightest", "_weights")

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a sketch needs at least one place, got {capacity}")
        self._capacity = capacity
        self._weights: dict[str, int] = {}
        self._errors: dict[str, int] = {}
        # One entry per held key, with a weight it had at some time: brought up to date only when it comes to the top,
        # so that adding to a key that is held does not touch the heap.
        self._lightest: list[tuple[int, str]] = []

    def add(self, key: str, weight: int) -> None:
        """Add a weight, not negative, to a key."""
        known = self._weights.get(key)
        if known is not None:
            self._weights[key] = known + weight
        elif len(self._weights) < self._capacity:
            self._weights[key] = weight
            self._errors[key] = 0
            heappush(self._lightest, (weight, key))
        else:
            self._replace_lightest(key, weight)

    def heaviest(self, most: int) -> list[Heavy]:
        """The heaviest keys first; of equal ones, by name."""
        ranked = sorted(self._weights.items(), key=lambda entry: (-entry[1], entry[0]))[:most]
        return [Heavy(key, weight, self._errors[key]) for key, weight in ranked]

    def _replace_lightest(self, key: str, weight: int) -> None:
        heap, weights = self._lightest, self._weights
        seen, victim = heap[0]
        while seen != weights[victim]:
            heapreplace(heap, (weights[victim], victim))
            seen, victim = heap[0]
        del weights[victim], self._errors[victim]
        # The newcomer may have been here before, with at most the weight of whoever is lightest now.
        weights[key] = seen + weight
        self._errors[key] = seen
        heapreplace(heap, (seen + weight, key))

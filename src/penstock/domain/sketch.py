"""Summaries of an endless stream in bounded memory: a histogram, and the heaviest keys.

`TopK` is the space-saving sketch of Metwally, Agrawal and El Abbadi. With `capacity` counters and a stream of total
weight W, every key it holds satisfies

    true weight  <=  `weight`  <=  true weight + `error`,    and    error <= W / capacity,

and it holds every key whose true weight exceeds W / capacity. Weights are integers, so this is exact.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappush, heapreplace

import msgspec


class Histogram:
    """Counts values in fixed buckets and adds them up; a value on a bound falls below it."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.total = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count one value, or that it came a number of times."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self._counts)

    @property
    def mean(self) -> float:
        """The average value, 0 if there are none."""
        count = self.count
        return self.total / count if count else 0.0

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another histogram with the same bounds."""
        if tuple(other.bounds) != tuple(self.bounds):
            raise ValueError(f"histograms of different bounds do not merge: {self.bounds} and {other.bounds}")
        self._counts = [mine + theirs for mine, theirs in zip(self._counts, other._counts, strict=True)]
        self.total += other.total

    def cumulative(self) -> list[int]:
        """Return, per bound, the number of values at or below it; the last entry counts all of them."""
        running = 0
        sums: list[int] = []
        for count in self._counts:
            running += count
            sums.append(running)
        return sums


class Heavy(msgspec.Struct, frozen=True):
    """A key with its weight, and by how much that may be too large."""

    key: str
    weight: int
    error: int


class TopK:
    """Adds weights to keys; when it is full, a new key replaces the lightest one."""

    __slots__ = ("_capacity", "_errors", "_lightest", "_weights")

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a sketch needs at least one place, got {capacity}")
        self._capacity = capacity
        self._weights: dict[str, int] = {}
        self._errors: dict[str, int] = {}
        # One entry per key, with a weight the key had at some time. Entries are updated only at the top of the heap,
        # so that adding to a known key does not touch the heap.
        self._lightest: list[tuple[int, str]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._weights

    def add(self, key: str, weight: int) -> None:
        """Add a non-negative weight to a key."""
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
        """Return the heaviest keys first; equal ones by name."""
        ranked = sorted(self._weights.items(), key=lambda entry: (-entry[1], entry[0]))[:most]
        return [Heavy(key, weight, self._errors[key]) for key, weight in ranked]

    def _replace_lightest(self, key: str, weight: int) -> None:
        heap, weights = self._lightest, self._weights
        seen, victim = heap[0]
        while seen != weights[victim]:
            heapreplace(heap, (weights[victim], victim))
            seen, victim = heap[0]
        del weights[victim], self._errors[victim]
        # The new key may have been held before, with at most the weight of the lightest key now.
        weights[key] = seen + weight
        self._errors[key] = seen
        heapreplace(heap, (seen + weight, key))

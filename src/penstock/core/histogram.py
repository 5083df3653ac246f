"""A distribution in fixed buckets: cheap to add to, exact to merge."""

from bisect import bisect_left
from collections.abc import Sequence


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

"""What was delivered, minute by minute: counts, latencies and waits of each pool, endpoint and subscription.

A minute's row is the sum of its attempts, so rows of the same name merge exactly, in any order.
"""

from collections.abc import Iterable
from enum import StrEnum
from itertools import accumulate, pairwise

import msgspec

LATENCY_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000)
"""Upper ends of the latency buckets; a latency on a bound is below it, and one more bucket takes what is above all."""

BUCKETS = len(LATENCY_BOUNDS_MS) + 1

OTHERS = "(others)"
"""The name under which the smallest are counted together when a minute has too many."""

NONE = "(none)"
"""The name of what belongs to no pool, endpoint or subscription."""


class Dimension(StrEnum):
    """What attempts are counted by."""

    POOL = "pool"
    ENDPOINT = "endpoint"
    SUBSCRIPTION = "subscription"


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of one minute that share a name. Waits are those of first attempts, from when the job might go."""

    minute_ms: int
    by: Dimension
    name: str
    delivered: int = 0
    failed: int = 0
    refused: int = 0
    deferred: int = 0
    busy_ms: int = 0
    latency: tuple[int, ...] = (0,) * BUCKETS
    waits: int = 0
    waited_ms: int = 0
    longest_wait_ms: int = 0

    @property
    def attempts(self) -> int:
        """All of them, however they ended."""
        return self.delivered + self.failed + self.refused + self.deferred

    @property
    def success_rate(self) -> float | None:
        """The share delivered of those that were tried in earnest; None if none was."""
        tried = self.delivered + self.failed + self.refused
        return self.delivered / tried if tried else None

    def latency_ms(self, share: float) -> float | None:
        """The latency that this share of the attempts does not exceed, to within its bucket; None without attempts."""
        return percentile_ms(self.latency, share)


def merged(one: Minute, other: Minute) -> Minute:
    """Both together, under the name and minute of the first."""
    return msgspec.structs.replace(
        one,
        delivered=one.delivered + other.delivered,
        failed=one.failed + other.failed,
        refused=one.refused + other.refused,
        deferred=one.deferred + other.deferred,
        busy_ms=one.busy_ms + other.busy_ms,
        latency=tuple(mine + theirs for mine, theirs in zip(one.latency, other.latency, strict=True)),
        waits=one.waits + other.waits,
        waited_ms=one.waited_ms + other.waited_ms,
        longest_wait_ms=max(one.longest_wait_ms, other.longest_wait_ms),
    )


def summed(rows: Iterable[Minute]) -> list[Minute]:
    """Rows of equal minute, dimension and name merged into one."""
    sums: dict[tuple[int, Dimension, str], Minute] = {}
    for row in rows:
        key = (row.minute_ms, row.by, row.name)
        known = sums.get(key)
        sums[key] = row if known is None else merged(known, row)
    return list(sums.values())


def percentile_ms(latency: Iterable[int], share: float) -> float | None:
    """The value below which a share of a histogram lies, taken as even within a bucket; None when it is empty."""
    counts = list(latency)
    wanted = share * sum(counts)
    if not any(counts):
        return None
    # What is above the last bound is told as that bound: nothing more is known of it.
    edges = (0, *LATENCY_BOUNDS_MS, LATENCY_BOUNDS_MS[-1])
    below = 0
    for (lower, upper), count, upto in zip(pairwise(edges), counts, accumulate(counts), strict=True):
        if count and upto >= wanted:
            return lower + (upper - lower) * max(wanted - below, 0) / count
        below = upto
    return float(edges[-1])

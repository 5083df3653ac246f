"""Deliveries by minute: counts, latencies and waits of each pool, endpoint and subscription, and the busiest groups.

A minute's row is the sum of its attempts, so rows of the same name merge exactly, in any order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import accumulate, pairwise

import msgspec

from penstock.domain.outcome import AttemptOutcome
from penstock.domain.sketch import Histogram
from penstock.events.statistics.facts import Fact

COARSE_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000)
"""Upper bounds, inclusive, of few buckets: for what is drawn, and for minutes that were counted before version 0.2."""

_STEPS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
LATENCY_BOUNDS_MS: tuple[int, ...] = (
    *range(1, 10),
    *(step * scale for scale in (1, 10, 100) for step in _STEPS),
    *(step * 1000 for step in _STEPS[:-1]),
)
"""Upper bounds of the latency buckets, inclusive; one more bucket takes all that is above.

From 5 ms on each is a third wider than the one before at most, so that a percentile is as near to the truth.
"""

BUCKETS = len(LATENCY_BOUNDS_MS) + 1

OTHERS = "(others)"
"""The name under which the smallest are counted together when a minute has too many names."""

NONE = "(none)"
"""The name for attempts without a pool, endpoint or subscription."""

LEADERS_KEPT = 50


class Dimension(StrEnum):
    """What attempts are counted by."""

    POOL = "pool"
    ENDPOINT = "endpoint"
    SUBSCRIPTION = "subscription"


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of one minute and name. Waits are those of first attempts, from when the job could go."""

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
        """Return the number of attempts of any outcome."""
        return self.delivered + self.failed + self.refused + self.deferred

    @property
    def success_rate(self) -> float | None:
        """Return the share delivered of those that were not deferred; None if there were none."""
        tried = self.delivered + self.failed + self.refused
        return self.delivered / tried if tried else None

    def latency_ms(self, share: float) -> float | None:
        """Return the latency that a share of the attempts does not exceed, within its bucket; None without attempts."""
        return percentile_ms(self.latency, share)


def merged(one: Minute, other: Minute) -> Minute:
    """Return the sum of both, with the name and minute of the first."""
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
    """Merge rows of equal minute, dimension and name."""
    sums: dict[tuple[int, Dimension, str], Minute] = {}
    for row in rows:
        key = (row.minute_ms, row.by, row.name)
        known = sums.get(key)
        sums[key] = row if known is None else merged(known, row)
    return list(sums.values())


def refined(latency: tuple[int, ...]) -> tuple[int, ...]:
    """Return a histogram with the bounds of today; one of coarse buckets counts at the upper bound of each."""
    if len(latency) != len(COARSE_BOUNDS_MS) + 1:
        return latency
    counts = [0] * BUCKETS
    for bound, count in zip(COARSE_BOUNDS_MS, latency, strict=False):
        counts[LATENCY_BOUNDS_MS.index(bound)] = count
    counts[-1] = latency[-1]
    return tuple(counts)


def percentile_ms(latency: Iterable[int], share: float) -> float | None:
    """Return the value below which a share of a histogram lies, interpolated within a bucket; None if it is empty."""
    counts = list(latency)
    wanted = share * sum(counts)
    if not any(counts):
        return None
    # Values above the last bound are reported as that bound: nothing more is known of them.
    edges = (0, *LATENCY_BOUNDS_MS, LATENCY_BOUNDS_MS[-1])
    below = 0
    for (lower, upper), count, upto in zip(pairwise(edges), counts, accumulate(counts), strict=True):
        if count and upto >= wanted:
            return float(lower + (upper - lower) * max(wanted - below, 0) / count)
        below = upto
    return float(edges[-1])


class Leader(msgspec.Struct, frozen=True, array_like=True):
    """One group, and by how much `attempts` may be too large."""

    group_key: str
    attempts: int
    error: int = 0
    failed: int = 0
    busy_ms: int = 0


class Leaders(msgspec.Struct, frozen=True, array_like=True):
    """The groups of a minute with the most attempts, in bounded memory and mergeable.

    `floor` is the most that a group which is not held may have. For every group

        held:  true attempts  <=  `attempts`  <=  true attempts + `error`,      not held:  true attempts  <=  `floor`,

    and merging keeps both. `failed` and `busy_ms` count what was seen while the group was held: never too much.
    """

    held: tuple[Leader, ...] = ()
    floor: int = 0


def leading(counted: Iterable[Leader], most: int = LEADERS_KEPT, floor: int = 0) -> Leaders:
    """Return the leaders of groups that were counted exactly; equal ones are ordered by name."""
    ranked = sorted(counted, key=lambda leader: (-leader.attempts, leader.group_key))
    dropped = ranked[most].attempts if len(ranked) > most else 0
    return Leaders(tuple(ranked[:most]), max(floor, dropped))


def joined(one: Leaders, other: Leaders, most: int = LEADERS_KEPT) -> Leaders:
    """Merge two sets of leaders."""
    mine = {leader.group_key: leader for leader in one.held}
    theirs = {leader.group_key: leader for leader in other.held}
    both = (
        _sum(mine.get(key) or _unseen(key, one.floor), theirs.get(key) or _unseen(key, other.floor))
        for key in mine.keys() | theirs.keys()
    )
    return leading(both, most, one.floor + other.floor)


def _unseen(group_key: str, floor: int) -> Leader:
    return Leader(group_key, floor, floor)


def _sum(one: Leader, other: Leader) -> Leader:
    return Leader(
        one.group_key,
        one.attempts + other.attempts,
        one.error + other.error,
        one.failed + other.failed,
        one.busy_ms + other.busy_ms,
    )


class StatisticsPlace(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The place of an attempt in the order in which attempts are counted."""

    position: int
    job_id: str
    number: int
    at_ms: int


BEFORE_ALL = StatisticsPlace(-1, "", 0, 0)


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch of attempts adds to the statistics; `upto` is its last attempt."""

    upto: StatisticsPlace
    minutes: tuple[Minute, ...] = ()
    leaders: Mapping[int, Leaders] = {}
    """Keyed by minute."""
    rows: int = 0
    set_aside: int = 0
    repaired: int = 0


def count(facts: Iterable[Fact]) -> tuple[Minute, ...]:
    """Return the row of each minute, dimension and name."""
    # Most facts of a pool have the same endpoint and subscription: they are counted once, and named three times.
    shares: dict[tuple[int, str, str, str], list[Fact]] = defaultdict(list)
    for fact in facts:
        names = (fact.pool or NONE, fact.endpoint or NONE, fact.subscription_id or NONE)
        shares[fact.minute_ms, *names].append(fact)
    rows = (row for (minute_ms, *names), share in shares.items() for row in _rows(minute_ms, names, share))
    return tuple(sorted(summed(rows), key=lambda row: (row.minute_ms, row.by, row.name)))


def count_leaders(facts: Iterable[Fact]) -> dict[int, Leaders]:
    """Return the leaders of each minute."""
    groups: dict[tuple[int, str], list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.group_key is not None:
            groups[fact.minute_ms, fact.group_key].append(fact)
    minutes: dict[int, list[Leader]] = defaultdict(list)
    for (minute_ms, group_key), share in groups.items():
        failed, busy_ms = sum(map(_failed, share)), sum(fact.duration_ms for fact in share)
        minutes[minute_ms].append(Leader(group_key, len(share), 0, failed, busy_ms))
    return {minute_ms: leading(counted) for minute_ms, counted in minutes.items()}


def _failed(fact: Fact) -> int:
    return int(fact.outcome in (AttemptOutcome.FAILED, AttemptOutcome.REFUSED))


def _rows(minute_ms: int, names: Iterable[str], facts: list[Fact]) -> Iterable[Minute]:
    """Return the rows of facts that have all their names in common."""
    (by, first), *others = zip((Dimension.POOL, Dimension.ENDPOINT, Dimension.SUBSCRIPTION), names, strict=True)
    row = _row(minute_ms, by, first, facts)
    yield row
    for by, name in others:
        yield msgspec.structs.replace(row, by=by, name=name)


def _row(minute_ms: int, by: Dimension, name: str, facts: list[Fact]) -> Minute:
    latency = Histogram(LATENCY_BOUNDS_MS)
    for fact in facts:
        if fact.was_sent:
            latency.observe(fact.duration_ms)
    outcomes = [fact.outcome for fact in facts]
    waits = [fact.waited_ms for fact in facts if fact.waited_ms is not None]
    return Minute(
        minute_ms=minute_ms,
        by=by,
        name=name,
        delivered=outcomes.count(AttemptOutcome.DELIVERED),
        failed=outcomes.count(AttemptOutcome.FAILED),
        refused=outcomes.count(AttemptOutcome.REFUSED),
        deferred=outcomes.count(AttemptOutcome.DEFERRED),
        busy_ms=sum(fact.duration_ms for fact in facts),
        latency=tuple(upto - below for below, upto in pairwise((0, *latency.cumulative()))),
        waits=len(waits),
        waited_ms=sum(waits),
        longest_wait_ms=max(waits, default=0),
    )

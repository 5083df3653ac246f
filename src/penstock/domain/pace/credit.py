"""Credit: how many jobs may be on their way, so that what a pool cannot deliver soon stays PENDING (SCHED-CREDIT-1).

A job is on its way while it is QUEUED or PROCESSING. A pool has credit for what it delivers in the next seconds, a
subscription in a shared pool for a part of that, and an ordered lane for a few jobs: so the jobs behind a failing one
are not carried through the queue in vain. Both engines use these rules.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from penstock.domain.job_state import DEFAULT_CONCURRENCY, DEFAULT_DISPATCH_POOL

LANE_CREDIT = 10
"""Jobs of an ordered lane that may be on their way."""

# The room of a router's pool is the same, so that what was published is in the router, where turns are fair.
_PER_PERMIT = 20
_LEAST = 50
_LIMITED_S = 5
_AHEAD_S = 2
_MOST_GROWTH = 25
# A pool with less of its credit free waits a moment: to publish jobs one by one costs as much as to publish many.
_WORTHWHILE = 4
_SHORTEST_REST_MS = 5
_FIRST_REST_MS = 10
_LONGEST_REST_MS = 250
# Rests end together, so that a thousand waiting pools cause twenty polls per second and not a thousand.
_GRID_MS = 50
# Limits that were changed are followed after this time.
_GOOD_FOR_MS = 2_000


class CreditLimits(msgspec.Struct, frozen=True):
    """What a pool may deliver, and whether several subscriptions share it."""

    concurrency: int = DEFAULT_CONCURRENCY
    rate_limit_per_minute: int | None = None
    shared: bool = True


class AwakeStream(NamedTuple):
    """The jobs of one subscription in one pool that may have some to publish; '' for jobs without a subscription."""

    pool: str
    subscription: str


def pool_credit(limits: CreditLimits, ended_per_s: float = 0.0) -> int:
    """Return how many jobs of a pool may be on their way, given how many deliveries of it ended per second lately."""
    room = max(limits.concurrency * _PER_PERMIT, _LEAST)
    if limits.rate_limit_per_minute is not None:
        return min(room, max(limits.concurrency, ceil(limits.rate_limit_per_minute * _LIMITED_S / 60)))
    if limits.shared:
        return room
    return max(room, min(int(ended_per_s * _AHEAD_S), room * _MOST_GROWTH))


def shares(credit: int, on_their_way: Mapping[str, int], waiting: Sequence[str], *, shared: bool) -> dict[str, int]:
    """Return how many jobs each waiting subscription of a pool may publish now.

    In a shared pool room for one more subscription always stays free: a subscription has at most a half of the credit,
    and one of N at most one part in N + 1. It may have a half of its part even if another one, which had the pool to
    itself before, has more than its own. Those with less on their way come first.
    """
    free = max(0, credit - sum(on_their_way.values()))
    most = _part(credit, on_their_way, waiting) if shared else credit
    least = -(-most // 2) if shared else 0
    granted: dict[str, int] = {}
    left = sorted(waiting, key=lambda name: on_their_way.get(name, 0), reverse=True)
    while left:
        name = left.pop()
        # An equal part of what is left, so that what one cannot take is for the others.
        part = -(-free // (len(left) + 1))
        own = on_their_way.get(name, 0)
        granted[name] = max(0, min(max(part, least - own), most - own))
        free = max(0, free - granted[name])
    return {name: granted[name] for name in waiting}


def _part(credit: int, on_their_way: Mapping[str, int], waiting: Sequence[str]) -> int:
    """Return how much of a shared pool's credit one subscription may have."""
    active = len(set(waiting).union(name for name, count in on_their_way.items() if count))
    return max(1, credit // (active + 1))


def lane_room(on_their_way: int, most: int, *, tried: bool) -> int:
    """Return how many jobs of an ordered lane may be published; `tried` if its first one was attempted before.

    That one goes alone: if it fails again, the jobs behind it would come back.
    """
    room = max(0, most - on_their_way)
    return min(room, 1) if tried else room


class PoolFlow:
    """What is known of one pool: how many of its jobs are on their way, and how fast deliveries end.

    It is counted when the credit seems to be used up; until then what was published is added to the last count.
    """

    def __init__(self, limits: CreditLimits) -> None:
        self.limits = limits
        self.rests_until_ms = 0
        # The subscriptions that had nothing worthwhile to publish when the rest began.
        self._resting: frozenset[str] = frozenset()
        self._on_their_way: dict[str, int] | None = None
        self._counted_at_ms = 0
        self._ended_per_s = 0.0
        self._rest_ms = _FIRST_REST_MS

    @property
    def credit(self) -> int:
        """Return how many jobs may be on their way."""
        return pool_credit(self.limits, self._ended_per_s)

    @property
    def count_to(self) -> int:
        """Return how far to count; more makes no difference."""
        return max(self.credit, sum((self._on_their_way or {}).values())) + 1

    def rests(self, waiting: Iterable[str], now_ms: int) -> bool:
        """Return whether the pool rests; a subscription that has come since then ends that."""
        return self.rests_until_ms > now_ms and self._resting.issuperset(waiting)

    def needs_count(self, waiting: Sequence[str], now_ms: int) -> bool:
        """Return whether, as far as is known, no waiting subscription may publish, or for a while some could not."""
        if self._on_their_way is None:
            return True
        granted = self.shares(waiting).values()
        return not any(granted) or (not all(granted) and now_ms >= self._counted_at_ms + _GRID_MS)

    def shares(self, waiting: Sequence[str]) -> dict[str, int]:
        """Return how many jobs each waiting subscription may publish."""
        return shares(self.credit, self._on_their_way or {}, waiting, shared=self.limits.shared)

    def published(self, subscription: str, jobs: int) -> None:
        """Note that jobs were published, or may be soon."""
        if self._on_their_way is not None:
            self._on_their_way[subscription] = self._on_their_way.get(subscription, 0) + jobs

    def counted(self, on_their_way: Mapping[str, int], waiting: Sequence[str], now_ms: int) -> None:
        """Note a count; the pool rests if there is nothing worthwhile to publish."""
        self._note_pace(sum(on_their_way.values()), now_ms)
        self._on_their_way = dict(on_their_way)
        if self._is_worthwhile(waiting):
            self._rest_ms = _FIRST_REST_MS
            return
        self._rest_ms = self._next_rest_ms()
        self._resting = frozenset(waiting)
        grid_ms = _GRID_MS if self._rest_ms >= _GRID_MS else 1
        self.rests_until_ms = -(-(now_ms + self._rest_ms) // grid_ms) * grid_ms

    def _is_worthwhile(self, waiting: Sequence[str]) -> bool:
        known = self._on_their_way or {}
        most = _part(self.credit, known, waiting) if self.limits.shared else self.credit
        return any(
            jobs >= max(1, most // _WORTHWHILE) or (jobs and not known.get(name))
            for name, jobs in self.shares(waiting).items()
        )

    def _note_pace(self, on_their_way: int, now_ms: int) -> None:
        if self._on_their_way is not None and now_ms > self._counted_at_ms:
            ended = max(0, sum(self._on_their_way.values()) - on_their_way)
            self._ended_per_s = max(self._ended_per_s / 2, ended * 1000 / (now_ms - self._counted_at_ms))
        self._counted_at_ms = now_ms

    def _next_rest_ms(self) -> int:
        if self._ended_per_s < 1:
            return min(2 * self._rest_ms, _LONGEST_REST_MS)
        until_worthwhile_ms = round(1000 * self.credit / _WORTHWHILE / self._ended_per_s)
        return min(max(until_worthwhile_ms, _SHORTEST_REST_MS), _LONGEST_REST_MS)


Count = Callable[[Mapping[str, int]], Iterable[tuple[str, str, int]]]
"""Counts the jobs on their way of pools, each up to a number; returns pool, subscription and number."""

ReadLimits = Callable[[], Mapping[str, CreditLimits]]
"""Reads the limits of all pools."""


class CreditBook:
    """The credit of all pools that have something to publish; `default_pool` is the pool of jobs that name none.

    Where each look costs much by itself, as with Spark's rounds, pools do not rest and are counted every time. With
    `fixed` all pools have these limits.
    """

    def __init__(
        self,
        default_pool: str = DEFAULT_DISPATCH_POOL,
        *,
        rests: bool = True,
        fixed: CreditLimits | None = None,
        in_hand: "Counter[AwakeStream] | None" = None,
    ) -> None:
        # Jobs that were taken from their lanes and are not yet marked as published, which no count has in it.
        self._in_hand: Counter[AwakeStream] = Counter() if in_hand is None else in_hand
        self._default_pool = default_pool
        self._rests = rests
        self._fixed = fixed
        self._limits: Mapping[str, CreditLimits] = {}
        self._seen: set[AwakeStream] = set()
        self._read_at_ms: int | None = None
        self._flows: dict[str, PoolFlow] = {}
        self._resting: set[str] = set()

    def grants(
        self, waiting: Sequence[AwakeStream], now_ms: int, count: Count, read_limits: ReadLimits
    ) -> dict[AwakeStream, int]:
        """Return how many jobs each stream may publish now, without those that may publish none."""
        self._resting = set()
        if not waiting:
            return {}
        by_pool: dict[str, list[str]] = {}
        for stream in waiting:
            by_pool.setdefault(stream.pool, []).append(stream.subscription)
        if self._fixed is None:
            self._update_limits(waiting, now_ms, read_limits)
        flows = {pool: self._flow(pool) for pool in by_pool}
        self._resting = self._resting_among(flows, by_pool, now_ms)
        looked_at = {pool: flow for pool, flow in flows.items() if pool not in self._resting}
        self._count(looked_at, by_pool, now_ms, count)
        self._resting = self._resting_among(flows, by_pool, now_ms)
        return {
            AwakeStream(pool, subscription): jobs
            for pool, subscriptions in by_pool.items()
            if pool not in self._resting
            for subscription, jobs in flows[pool].shares(subscriptions).items()
            if jobs
        }

    def published(self, stream: AwakeStream, jobs: int) -> None:
        """Note that jobs of a stream are being published."""
        self._flow(stream.pool).published(stream.subscription, jobs)

    def next_look_ms(self) -> int | None:
        """Return when a pool that had nothing to give is looked at again; None if there is none."""
        return min((self._flows[pool].rests_until_ms for pool in self._resting), default=None)

    def _resting_among(
        self, flows: Mapping[str, PoolFlow], by_pool: Mapping[str, Sequence[str]], now_ms: int
    ) -> set[str]:
        return {pool for pool, flow in flows.items() if self._rests and flow.rests(by_pool[pool], now_ms)}

    def _update_limits(self, waiting: Sequence[AwakeStream], now_ms: int, read_limits: ReadLimits) -> None:
        """Read the limits if they are old, or were read before one of the streams came: its pool may now be shared."""
        is_fresh = self._read_at_ms is not None and 0 <= now_ms - self._read_at_ms < _GOOD_FOR_MS
        if is_fresh and self._seen.issuperset(waiting):
            return
        self._limits, self._read_at_ms = read_limits(), now_ms
        self._seen.update(waiting)

    def _code_of(self, pool: str) -> str:
        return self._default_pool if pool == DEFAULT_DISPATCH_POOL else pool

    def _flow(self, pool: str) -> PoolFlow:
        limits = self._fixed or self._limits_of(pool)
        flow = self._flows.get(pool)
        if flow is None:
            flow = self._flows[pool] = PoolFlow(limits)
        flow.limits = limits
        return flow

    def _limits_of(self, pool: str) -> CreditLimits:
        # A pool that is not known is that of jobs created directly, or of a subscription that was renamed since.
        return self._limits.get(self._code_of(pool)) or CreditLimits(shared=False)

    def _count(
        self, flows: Mapping[str, PoolFlow], by_pool: Mapping[str, Sequence[str]], now_ms: int, count: Count
    ) -> None:
        wanted = {
            pool: flow.count_to
            for pool, flow in flows.items()
            if not self._rests or flow.needs_count(by_pool[pool], now_ms)
        }
        if not wanted:
            return
        counts: dict[str, dict[str, int]] = {pool: {} for pool in wanted}
        # Read first: what is marked in between counts twice for a moment, and not never.
        in_hand = list(self._in_hand.items())
        for pool, subscription, jobs in count(wanted):
            counts[pool][subscription] = jobs
        for (pool, subscription), jobs in in_hand:
            if jobs and pool in counts:
                counts[pool][subscription] = counts[pool].get(subscription, 0) + jobs
        for pool, on_their_way in counts.items():
            flows[pool].counted(on_their_way, by_pool[pool], now_ms)

"""The counts of pools: plain numbers, converted to Prometheus metrics only when they are scraped."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.domain.sketch import Heavy, Histogram, TopK
from penstock.edge.clock import stopwatch

# Up to the request time-out of 15 minutes; a message may wait as long for its turn.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
SHOWN_GROUPS = 20
# Five times the groups shown, so that the estimate of the heaviest groups is reliable.
_SKETCHED_GROUPS = 5 * SHOWN_GROUPS
_US = 1_000_000
# The sketches see the first messages, then one in _SAMPLE with _SAMPLE times its weight.
_SAMPLE = 16
_SAMPLED_FROM = 256
_SLOT_S = 30.0
_RECENT_SLOTS = 10
# Few, as each group has its own.
GROUP_BUCKETS_S = (0.01, 0.1, 1.0, 10.0, 60.0, 900.0)
SHOWN_GROUP_TIMES = 10


class RecentResults:
    """How many messages succeeded and failed in the last five minutes, in slots of half a minute."""

    __slots__ = ("_seconds", "_slots")

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        # Number of the slot, succeeded, failed.
        self._slots: deque[list[int]] = deque()

    def add(self, *, success: bool) -> None:
        """Count a message that ends now."""
        slot = int(self._seconds() // _SLOT_S)
        if not self._slots or self._slots[-1][0] != slot:
            self._forget_before(slot)
            self._slots.append([slot, 0, 0])
        self._slots[-1][1 if success else 2] += 1

    def counts(self) -> tuple[int, int]:
        """Return how many succeeded and how many failed."""
        self._forget_before(int(self._seconds() // _SLOT_S))
        return sum(slot[1] for slot in self._slots), sum(slot[2] for slot in self._slots)

    def _forget_before(self, slot: int) -> None:
        while self._slots and self._slots[0][0] <= slot - _RECENT_SLOTS:
            self._slots.popleft()


class PoolMetrics:
    """The counts of one pool since its creation. Each finished message is counted under one of four results."""

    __slots__ = (
        "_gap_seed",
        "_group_busy_us",
        "_group_times",
        "_group_waited_us",
        "_recent",
        "_sketched_count",
        "_until_sketch",
        "deferred_count",
        "failed_count",
        "processing",
        "rate_limit_waits",
        "submitted_count",
        "succeeded_count",
        "transient_count",
        "waiting",
    )

    def __init__(self, seconds: Callable[[], float] = stopwatch) -> None:
        self._recent = RecentResults(seconds)
        self.submitted_count = 0
        self.succeeded_count = 0
        self.failed_count = 0
        self.transient_count = 0
        self.deferred_count = 0
        self.rate_limit_waits = 0
        self.processing = Histogram(BUCKETS_S)
        self.waiting = Histogram(BUCKETS_S)
        self._group_busy_us = TopK(_SKETCHED_GROUPS)
        self._group_waited_us = TopK(_SKETCHED_GROUPS)
        self._group_times: dict[str, GroupTimes] = {}
        self._sketched_count = 0
        self._until_sketch = 1
        self._gap_seed = 1

    def submitted(self, messages: int) -> None:
        """Count messages that the pool accepted."""
        self.submitted_count += messages

    def rate_limited(self) -> None:
        """Count a time in which the rate limit held the pool back, once however long it was."""
        self.rate_limit_waits += 1

    def delivered(self, duration_s: float, waited_s: float, group: str) -> None:
        """Count a delivered message: SUCCESS."""
        self.succeeded_count += 1
        self._recent.add(success=True)
        self._ended(duration_s, waited_s, group)

    def failed(self, duration_s: float, waited_s: float, group: str) -> None:
        """Count a failed message: ERROR_CONFIG (rejected for good) or ERROR_CONNECTION."""
        self.failed_count += 1
        self._recent.add(success=False)
        self._ended(duration_s, waited_s, group)

    def transient(self, duration_s: float, waited_s: float, group: str) -> None:
        """Count a message to be retried: ERROR_PROCESS. Not a failure, as the endpoint may still succeed."""
        self.transient_count += 1
        self._ended(duration_s, waited_s, group)

    def deferred(self, duration_s: float, waited_s: float, group: str) -> None:
        """Count a message to be retried at the endpoint's request: `ack: false`, or 429."""
        self.deferred_count += 1
        self._ended(duration_s, waited_s, group)

    @property
    def success_rate(self) -> float:
        """The share of messages that succeeded, of those that succeeded or failed lately; 1 if there are none."""
        succeeded, failed = self._recent.counts()
        return succeeded / (succeeded + failed) if succeeded or failed else 1.0

    @property
    def judged_count(self) -> int:
        """The number of messages that succeeded or failed in the last five minutes."""
        return sum(self._recent.counts())

    @property
    def average_processing_ms(self) -> float:
        """Average time of a message's deliveries, all attempts together."""
        return self.processing.mean * 1000

    def busiest_groups(self) -> list[Heavy]:
        """Return the groups whose deliveries took the most time, in microseconds."""
        return self._group_busy_us.heaviest(SHOWN_GROUPS)

    def most_delayed_groups(self) -> list[Heavy]:
        """Return the groups whose messages waited longest for their turn, in microseconds."""
        return self._group_waited_us.heaviest(SHOWN_GROUPS)

    def _ended(self, duration_s: float, waited_s: float, group: str) -> None:
        self.processing.observe(duration_s)
        self.waiting.observe(waited_s)
        self._until_sketch -= 1
        if self._until_sketch == 0:
            self._sketch(duration_s, waited_s, group)

    def _sketch(self, duration_s: float, waited_s: float, group: str) -> None:
        sampling = self._sketched_count >= _SAMPLED_FROM
        times = _SAMPLE if sampling else 1
        self._group_busy_us.add(group, int(duration_s * _US) * times)
        self._group_waited_us.add(group, int(waited_s * _US) * times)
        found = self._times_of(group)
        found.processing.observe(duration_s, times)
        found.waiting.observe(waited_s, times)
        self._sketched_count += 1
        self._until_sketch = self._next_gap() if sampling else 1

    def _times_of(self, group: str) -> "GroupTimes":
        found = self._group_times.get(group)
        if found is None:
            # The busiest groups stay the same for long, so that this is seldom.
            held = self._group_busy_us
            self._group_times = {name: times for name, times in self._group_times.items() if name in held}
            found = self._group_times[group] = GroupTimes(Histogram(GROUP_BUCKETS_S), Histogram(GROUP_BUCKETS_S))
        return found

    def group_times(self) -> "list[tuple[str, GroupTimes]]":
        """Return the times of the busiest groups, estimated since each is among them."""
        found = ((heavy.key, self._group_times.get(heavy.key)) for heavy in self.busiest_groups()[:SHOWN_GROUP_TIMES])
        return [(group, times) for group, times in found if times is not None]

    def _next_gap(self) -> int:
        """Return 1 to 31, 16 on average; a fixed gap could always hit the same group, as groups take turns."""
        self._gap_seed = (self._gap_seed * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF
        return 1 + (self._gap_seed >> 16) % (2 * _SAMPLE - 1)


class GroupTimes(NamedTuple):
    """How long the deliveries of a group's messages took, and how long they waited for their turn."""

    processing: Histogram
    waiting: Histogram


class RouterMetrics:
    """The counts of all pools, and of messages whose own pool does not exist."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolMetrics] = {}
        self.default_pool_uses = 0

    def pool(self, code: str) -> PoolMetrics:
        """Return the counts of a pool, created on first use."""
        found = self._pools.get(code)
        if found is None:
            found = self._pools[code] = PoolMetrics()
        return found

    def forget(self, code: str) -> None:
        """Remove the counts of a drained pool."""
        self._pools.pop(code, None)

    def default_pool_used(self, messages: int) -> None:
        """Count messages whose pool does not exist."""
        self.default_pool_uses += messages

    def __iter__(self) -> Iterator[tuple[str, PoolMetrics]]:
        return iter(self._pools.items())

"""The counts of pools: plain numbers, converted to Prometheus metrics only when they are scraped."""

from collections.abc import Iterator

from penstock.domain.sketch import Heavy, Histogram, TopK

# Up to the request time-out of 15 minutes; a message may wait as long for its turn.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
SHOWN_GROUPS = 20
# Five times the groups shown, so that the estimate of the heaviest groups is reliable.
_SKETCHED_GROUPS = 5 * SHOWN_GROUPS
_US = 1_000_000
# The sketches see the first messages, then one in _SAMPLE with _SAMPLE times its weight.
_SAMPLE = 16
_SAMPLED_FROM = 256


class PoolMetrics:
    """The counts of one pool since its creation. Each finished message is counted under one of four results."""

    __slots__ = (
        "_gap_seed",
        "_group_busy_us",
        "_group_waited_us",
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

    def __init__(self) -> None:
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
        self._sketched_count = 0
        self._until_sketch = 1
        self._gap_seed = 1

    def submitted(self, messages: int) -> None:
        """Count messages that the pool accepted."""
        self.submitted_count += messages

    def rate_limited(self) -> None:
        """Count a wait for the rate limit, once however long it takes."""
        self.rate_limit_waits += 1

    def delivered(self, duration_s: float, waited_s: float, group: str) -> None:
        """Count a delivered message: SUCCESS."""
        self.succeeded_count += 1
        self._ended(duration_s, waited_s, group)

    def failed(self, duration_s: float, waited_s: float, group: str) -> None:
        """Count a failed message: ERROR_CONFIG (rejected for good) or ERROR_CONNECTION."""
        self.failed_count += 1
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
        """The share of messages that succeeded, of those that succeeded or failed; 1 if there are none yet."""
        ended = self.succeeded_count + self.failed_count
        return self.succeeded_count / ended if ended else 1.0

    @property
    def average_processing_ms(self) -> float:
        """Average time of a delivery."""
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
        self._sketched_count += 1
        self._until_sketch = self._next_gap() if sampling else 1

    def _next_gap(self) -> int:
        """Return 1 to 31, 16 on average; a fixed gap could always hit the same group, as groups take turns."""
        self._gap_seed = (self._gap_seed * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF
        return 1 + (self._gap_seed >> 16) % (2 * _SAMPLE - 1)


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

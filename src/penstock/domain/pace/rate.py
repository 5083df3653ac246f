"""Rate limits: an exact sliding window (ROUTER-RATE-1), and an exact token bucket."""

from collections import deque
from decimal import Decimal
from math import lcm

import msgspec

from penstock.domain.limits import SECOND_MS

WINDOW_MS = 60_000
MAX_RETRY_AFTER_S = 3600


class Grant(msgspec.Struct, frozen=True):
    """Permits of a limit that several processes share; none: after some time there may be one."""

    id: int
    count: int
    wait_s: float = 0.0


GRANT_HOLD_MS = 1000
"""How long a granted permit may be used, from before it was asked for."""


class SlidingWindow:
    """At most N permits in any 60 seconds, with bursts of up to N; it remembers when each was taken."""

    __slots__ = ("_taken_ms", "limit")

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self.limit = limit
        self._taken_ms: deque[int] = deque()

    def take(self, now_ms: int) -> bool:
        """Take a permit if there is one."""
        if self.ready_at_ms(now_ms) > now_ms:
            return False
        while self._taken_ms and self._taken_ms[0] + WINDOW_MS < now_ms:
            self._taken_ms.popleft()
        self._taken_ms.append(now_ms)
        return True

    def ready_at_ms(self, now_ms: int) -> int:
        """Return when the next permit is available, `now_ms` if one is now; this takes nothing."""
        if len(self._taken_ms) < self.limit:
            return now_ms
        # A clock of whole milliseconds may be up to one behind: only the next one is certainly past the window.
        return max(now_ms, self._taken_ms[-self.limit] + WINDOW_MS + 1)

    def is_unused(self, now_ms: int) -> bool:
        """Return whether no permit was taken within the window."""
        return not self._taken_ms or self._taken_ms[-1] + WINDOW_MS < now_ms

    def change_limit(self, limit: int) -> None:
        """Change the limit; permits already taken count against the new one."""
        assert limit > 0
        self.limit = limit


class TokenBucket:
    """Allows a burst up to its capacity, then refills steadily; a new bucket is full.

    Amounts are integers in a unit that divides a token, the capacity and a millisecond's refill: nothing is rounded.
    The caller's clock only moves forward: a time before the last one seen adds nothing.
    """

    __slots__ = ("_level", "_limit", "_per_ms", "_token", "capacity", "refill_per_s", "updated_ms")

    def __init__(self, capacity: Decimal, refill_per_s: Decimal, now_ms: int) -> None:
        self.updated_ms = now_ms
        self._configure(capacity, refill_per_s)
        self._level = self._limit

    def _configure(self, capacity: Decimal, refill_per_s: Decimal) -> None:
        whole, whole_per = capacity.as_integer_ratio()
        rate, rate_per = refill_per_s.as_integer_ratio()
        per_token = lcm(whole_per, rate_per)
        self.capacity = capacity
        self.refill_per_s = refill_per_s
        self._token = per_token * SECOND_MS
        self._limit = whole * (per_token // whole_per) * SECOND_MS
        self._per_ms = rate * (per_token // rate_per)

    def tokens(self, now_ms: int) -> float:
        """Return the number of tokens at a time."""
        return self._level_at(now_ms) / self._token

    def take(self, n: int, now_ms: int) -> bool:
        """Take all `n` tokens or none."""
        if now_ms > self.updated_ms:
            self._advance(now_ms)
        cost = n * self._token
        if cost > self._level:
            return False
        self._level -= cost
        return True

    def retry_after_s(self, n: int, now_ms: int) -> int:
        """Return the whole seconds, 1 to 3600, until `n` tokens are available if no one else takes any."""
        short = n * self._token - self._level_at(now_ms)
        behind_ms = max(0, self.updated_ms - now_ms)
        if short <= 0:
            wait_ms = behind_ms
        elif self._per_ms == 0:
            return MAX_RETRY_AFTER_S
        else:
            wait_ms = behind_ms - -short // self._per_ms
        return min(MAX_RETRY_AFTER_S, max(1, -(-wait_ms // SECOND_MS)))

    def reconfigure(self, capacity: Decimal, refill_per_s: Decimal, now_ms: int) -> None:
        """Change the limits; tokens above the new capacity are lost."""
        self._advance(now_ms)
        level, token = self._level, self._token
        self._configure(capacity, refill_per_s)
        self._level = min(self._limit, level * self._token // token)

    def is_full(self, now_ms: int) -> bool:
        """Return whether a new bucket would hold the same."""
        return self._level_at(now_ms) == self._limit

    def _level_at(self, now_ms: int) -> int:
        elapsed_ms = max(0, now_ms - self.updated_ms)
        return min(self._limit, self._level + elapsed_ms * self._per_ms)

    def _advance(self, now_ms: int) -> None:
        if now_ms > self.updated_ms:
            self._level = self._level_at(now_ms)
            self.updated_ms = now_ms

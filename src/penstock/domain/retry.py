"""Delays before a retry: back-off of a message, retry schedule of a job, back-off of a component."""

import msgspec

from penstock.domain.errors import InvalidArgument

# 2**40 seconds exceeds any maximum; a larger exponent would only create large integers.
_MAX_DOUBLINGS = 40

# Up to a fifth is added, so that jobs that failed together do not all retry together; never subtracted.
_JITTER_SHARE = 0.2
_LONGEST_DELAY_S = 7 * 24 * 60 * 60


class RetryPolicy(msgspec.Struct, frozen=True):
    """Waits `min(minimum * 2**(attempt - 1), maximum)` after a failed delivery."""

    minimum_backoff_s: float = 10.0
    maximum_backoff_s: float = 600.0

    def delay_ms(self, attempt: int) -> int:
        """Return how long a message waits after its delivery `attempt` (1, 2, …) failed."""
        doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
        return round(min(self.minimum_backoff_s * (1 << doublings), self.maximum_backoff_s) * 1000)


class RetrySchedule(msgspec.Struct, frozen=True):
    """The delays after the first, second, … failed attempt; after the last one the job fails."""

    delays_s: tuple[float, ...] = (5, 30, 120, 600, 3600, 21_600)

    def __post_init__(self) -> None:
        for delay_s in self.delays_s:
            if not 0 <= delay_s <= _LONGEST_DELAY_S:
                raise InvalidArgument(f"a retry delay is between 0 and {_LONGEST_DELAY_S} seconds, got {delay_s}")

    def delay_ms(self, attempts_spent: int, jitter: float, retry_after_s: float | None = None) -> int | None:
        """Return how long to wait after `attempts_spent` failed attempts, or None if none are left.

        `jitter` is a number from 0 to 1, drawn by the caller. An endpoint's Retry-After wins if it is longer.
        """
        if attempts_spent > len(self.delays_s):
            return None
        scheduled_s = self.delays_s[max(attempts_spent, 1) - 1] * (1 + jitter * _JITTER_SHARE)
        return round(max(scheduled_s, retry_after_s or 0) * 1000)


DEFAULT_RETRY_SCHEDULE = RetrySchedule()


class Backoff:
    """A delay that doubles with every failure."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.delay_s = 0.0

    def failed(self) -> None:
        """Double the delay."""
        self.delay_s = min(self.delay_s * 2 or self._first_s, self._most_s)

    def succeeded(self) -> None:
        """Reset the delay to zero."""
        self.delay_s = 0.0

"""Delays before another try: back-off of a message, the retry schedule of a job, back-off of a part of Penstock."""

import msgspec

from penstock.domain.errors import InvalidArgument

# 2**40 seconds is past any maximum; a larger exponent would only make large integers.
_MAX_DOUBLINGS = 40


class RetryPolicy(msgspec.Struct, frozen=True):
    """Waits `min(minimum * 2**(attempt - 1), maximum)` after a failed delivery."""

    minimum_backoff_s: float = 10.0
    maximum_backoff_s: float = 600.0

    def delay_ms(self, attempt: int) -> int:
        """How long a message waits after its delivery number `attempt` (1, 2, …) failed."""
        doublings = min(max(attempt - 1, 0), _MAX_DOUBLINGS)
        return round(min(self.minimum_backoff_s * (1 << doublings), self.maximum_backoff_s) * 1000)


# Up to a fifth is added: jobs that failed together do not come back together, and never early.
_JITTER_SHARE = 0.2
_LONGEST_DELAY_S = 7 * 24 * 60 * 60


class RetrySchedule(msgspec.Struct, frozen=True):
    """The delays after the first, second, … failed attempt; after the last of them the job is given up."""

    delays_s: tuple[float, ...] = (5, 30, 120, 600, 3600, 21_600)

    def __post_init__(self) -> None:
        for delay_s in self.delays_s:
            if not 0 <= delay_s <= _LONGEST_DELAY_S:
                raise InvalidArgument(f"a retry delay is between 0 and {_LONGEST_DELAY_S} seconds, got {delay_s}")

    def delay_ms(self, attempts_spent: int, jitter: float, retry_after_s: float | None = None) -> int | None:
        """How long to wait after so many failed attempts; None when the job is out of attempts.

        `jitter` is a number from 0 to 1, drawn by the caller. An endpoint's Retry-After is waited out if it is longer.
        """
        if attempts_spent > len(self.delays_s):
            return None
        scheduled_s = self.delays_s[max(attempts_spent, 1) - 1] * (1 + jitter * _JITTER_SHARE)
        return round(max(scheduled_s, retry_after_s or 0) * 1000)


DEFAULT_RETRY_SCHEDULE = RetrySchedule()


class Backoff:
    """A delay that doubles."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.delay_s = 0.0

    def failed(self) -> None:
        """Wait longer than before."""
        self.delay_s = min(self.delay_s * 2 or self._first_s, self._most_s)

    def succeeded(self) -> None:
        """Wait no more."""
        self.delay_s = 0.0

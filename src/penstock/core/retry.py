"""Back-off between deliveries of one message."""

import msgspec

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

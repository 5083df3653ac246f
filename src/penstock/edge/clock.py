"""The wall clock."""

import time


class SystemClock:
    """The machine's time, held still instead of going backwards when somebody sets the clock back."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms


def wall_seconds() -> float:
    """Seconds since the Unix epoch, as the machine tells them."""
    return time.time()

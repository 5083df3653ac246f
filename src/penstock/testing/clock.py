"""A clock for tests, which moves only by `advance`."""


class VirtualClock:
    """A clock in milliseconds that stands still until `advance`."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """Return the current virtual time."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        if seconds < 0:
            raise ValueError(f"the time cannot go backwards: {seconds}")
        self._now_ms += round(seconds * 1000)

"""A clock that moves only when told."""


class VirtualClock:
    """Milliseconds that stand still until `advance`."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """The current virtual time."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds}")
        self._now_ms += round(seconds * 1000)

"""The clock port: every rule takes `now_ms`; shells read it from a Clock."""

from typing import Protocol


class Clock(Protocol):
    """Milliseconds since the Unix epoch, never going backwards."""

    def now_ms(self) -> int:
        """The current time in milliseconds."""
        ...

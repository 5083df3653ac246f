"""How long to wait before trying again: longer after every failure, not at all after a success."""


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

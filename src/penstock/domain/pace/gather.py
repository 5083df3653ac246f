"""How long a batch waits for more to share it: not at all while little arrives, a few milliseconds under load."""

GATHER_S = 0.01
WORTHWHILE = 8
"""How many must arrive in that time for the wait to be worth it."""

_NEW_SHARE = 0.5
_SHORTEST_S = 1e-4


class GatherPace:
    """Measures how fast items arrive, from the batches that they go into."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._per_s = 0.0

    def pause_s(self, count: int, now_s: float) -> float:
        """Return how long to wait between a batch of `count` that starts now and the next one."""
        if self._last_s is not None:
            per_s = count / max(now_s - self._last_s, _SHORTEST_S)
            self._per_s += _NEW_SHARE * (per_s - self._per_s)
        self._last_s = now_s
        return GATHER_S if self._per_s * GATHER_S >= WORTHWHILE else 0.0

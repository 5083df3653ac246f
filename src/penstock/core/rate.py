"""The rate limit of a pool: at most N permits in any 60 seconds, a burst of N allowed (ruling 11)."""

from collections import deque

WINDOW_MS = 60_000


class SlidingWindow:
    """Remembers when the permits of the last minute were taken: exact, unlike a bucket or a fixed period."""

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
        """When the next permit is there; now, if one is. Asking takes nothing."""
        if len(self._taken_ms) < self.limit:
            return now_ms
        # A clock of whole milliseconds may be up to one behind: only the next one is surely past the window.
        return max(now_ms, self._taken_ms[-self.limit] + WINDOW_MS + 1)

    def is_unused(self, now_ms: int) -> bool:
        """Whether no permit was taken within the window."""
        return not self._taken_ms or self._taken_ms[-1] + WINDOW_MS < now_ms

    def change_limit(self, limit: int) -> None:
        """Another limit from now on; what was taken counts against it."""
        assert limit > 0
        self.limit = limit

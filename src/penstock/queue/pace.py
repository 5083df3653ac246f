"""Where commits are done: on the loop while they are quick, by the writer thread while they are not."""

from penstock.core.limits import KIB

# A loop that stands still for this long is still prompt; beyond it others would notice.
_SLOW_S = 0.003
_QUICK_S = 0.0015
_WEIGHT = 0.2
# From here on, what the loop does meanwhile is worth the way to the thread and back.
_LARGE_BYTES = 256 * KIB


class CommitPace:
    """A running mean of how long commits take, and what follows from it."""

    __slots__ = ("_mean_s", "inline")

    def __init__(self, *, local: bool) -> None:
        self.inline = local
        """Whether commits that are not large are done on the loop."""
        self._mean_s: float | None = 0.0 if local else None

    def on_loop(self, size_bytes: int) -> bool:
        """Whether a commit of this size is done on the loop: while a large one is written, the loop takes in more."""
        return self.inline and size_bytes < _LARGE_BYTES

    def took(self, seconds: float, size_bytes: int) -> None:
        """A commit of this size took so long; between going over and going back is a gap, not to go to and fro."""
        if self._mean_s is None or size_bytes >= _LARGE_BYTES:
            return
        self._mean_s += (seconds - self._mean_s) * _WEIGHT
        if self._mean_s > _SLOW_S:
            self.inline = False
        elif self._mean_s < _QUICK_S:
            self.inline = True

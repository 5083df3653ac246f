"""Where commits are done: on the loop while they are quick, by the writer thread while they are not."""

# A loop that stands still for this long is still prompt; beyond it others would notice.
_SLOW_S = 0.003
_QUICK_S = 0.0015
_WEIGHT = 0.2


class CommitPace:
    """A running mean of how long commits take, and what follows from it."""

    __slots__ = ("_mean_s", "inline")

    def __init__(self, *, local: bool) -> None:
        self.inline = local
        """Whether the next commit is done on the loop."""
        self._mean_s: float | None = 0.0 if local else None

    def took(self, seconds: float) -> None:
        """A commit took so long. Whether to go over or back has a gap between, so that it does not go to and fro."""
        if self._mean_s is None:
            return
        self._mean_s += (seconds - self._mean_s) * _WEIGHT
        if self._mean_s > _SLOW_S:
            self.inline = False
        elif self._mean_s < _QUICK_S:
            self.inline = True

"""How many jobs a claim asks for: few when there is little to do, more and more while there is a backlog."""

_GROWTH = 4


class Pace:
    """The size of the next claim, and how many groups may be published at once.

    Both start at the configured numbers and grow together, as long as claims come back full, until a claim has
    `most` jobs. Claims that are not full bring them down again, a queue in trouble at once.
    """

    def __init__(self, batch: int, most: int, groups: int) -> None:
        self._first = batch
        self._most = max(batch, most)
        self._groups = groups
        self.batch = batch

    @property
    def groups(self) -> int:
        """How many groups may be published at once."""
        return max(1, self._groups * self.batch // self._first)

    def claimed(self, count: int) -> None:
        """A claim brought so many."""
        # Shares are whole numbers of jobs, so a claim of many groups may bring a little less than it asked for.
        if count > self.batch // 2:
            self.batch = min(self.batch * _GROWTH, self._most)
        else:
            self.batch = max(self.batch // _GROWTH, self._first)

    def slow_down(self) -> None:
        """Begin again with little."""
        self.batch = self._first

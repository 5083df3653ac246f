"""The claimed jobs of one group that wait to be published, in order."""

from collections.abc import Sequence

from penstock.domain.job import ClaimedJob


class MessageGroupQueue:
    """First in, first out, with one run of jobs in flight at a time.

    Jobs come in the order of their claims, which is that of the group: by `sequence`, then `created_at`. A run is
    published in that order too, so to take several at once keeps it.
    """

    __slots__ = ("_good_until_s", "_in_flight", "_pending")

    def __init__(self) -> None:
        self._pending: list[ClaimedJob] = []
        self._good_until_s = 0.0
        self._in_flight = False

    def add(self, jobs: Sequence[ClaimedJob], good_until_s: float) -> None:
        """Put jobs behind the others; after `good_until_s` it is too late to publish them."""
        self._good_until_s = min(self._good_until_s, good_until_s) if self._pending else good_until_s
        self._pending += jobs

    def is_too_late(self, now_s: float) -> bool:
        """Whether the claim of a job that waits is nearly over: it is claimed anew, so those behind it must not go."""
        return now_s >= self._good_until_s

    def take_run(self) -> list[ClaimedJob]:
        """All that wait, now in flight; none while others are."""
        if self._in_flight:
            return []
        self._in_flight = True
        return self.clear()

    def clear(self) -> list[ClaimedJob]:
        """Forget all that wait; what it was."""
        waiting, self._pending = self._pending, []
        return waiting

    def run_ended(self) -> None:
        """What was in flight is no longer."""
        self._in_flight = False

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to take."""
        return bool(self._pending) and not self._in_flight

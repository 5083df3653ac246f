"""What is counted of the pushes of one subscription."""

from collections import Counter
from enum import StrEnum

from penstock.domain.sketch import Histogram

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0)


class PushOutcome(StrEnum):
    """How a push ended."""

    ACKED = "acked"
    REFUSED = "refused"
    """An answer other than 2xx."""
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    FORBIDDEN = "forbidden"
    """The egress guard kept it from leaving."""


class PushCounts:
    """Pushes by outcome, those under way, and how long the endpoint took."""

    def __init__(self) -> None:
        self.ended: Counter[PushOutcome] = Counter()
        self.outstanding = 0
        self.seconds = Histogram(BUCKETS_S)

    def begin(self) -> None:
        """A push begins."""
        self.outstanding += 1

    def end(self, outcome: PushOutcome, seconds: float) -> None:
        """A push has ended."""
        self.outstanding -= 1
        self.ended[outcome] += 1
        self.seconds.observe(seconds)

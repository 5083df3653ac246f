"""The record of a stream of deliveries: how many arrived, how late, and whether each key kept its order."""

import msgspec


class Delivered(msgspec.Struct, frozen=True):
    """The data of an event of the benchmark: its stream, its place among the events of its key, and when it was sent.

    `sent_s` is the monotonic clock of this machine, which all its processes share.
    """

    stream: str
    sequence: int
    sent_s: float


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver saw of a stream."""

    requests: int = 0
    distinct: int = 0
    """Number of different events."""
    repeated: int = 0
    reordered: int = 0
    """Number of events that arrived after a later event of the same key."""
    overlapping: int = 0
    """Number of requests that arrived while another one of the same key was not answered."""
    last_s: float = 0.0
    """When the last new event arrived."""


class ReceivedStream:
    """ReceivedStreams the requests of a stream. Sequences of each key begin at 0."""

    def __init__(self) -> None:
        self.latencies_ms: list[float] = []
        self._requests = 0
        self._repeated = 0
        self._reordered = 0
        self._overlapping = 0
        self._last_s = 0.0
        self._next: dict[str, int] = {}
        self._skipped: dict[str, set[int]] = {}
        self._open: dict[str, int] = {}

    def begin(self, key: str, delivered: Delivered, now_s: float) -> None:
        """Record a request."""
        self._requests += 1
        unanswered = self._open.get(key, 0)
        self._overlapping += unanswered > 0
        self._open[key] = unanswered + 1
        if self._is_new(key, delivered.sequence):
            self._last_s = now_s
            self.latencies_ms.append((now_s - delivered.sent_s) * 1000)
        else:
            self._repeated += 1

    def end(self, key: str) -> None:
        """Record the answer to a request."""
        self._open[key] -= 1

    def _is_new(self, key: str, sequence: int) -> bool:
        expected = self._next.get(key, 0)
        if sequence >= expected:
            if sequence > expected:
                self._skipped.setdefault(key, set()).update(range(expected, sequence))
            self._next[key] = sequence + 1
            return True
        skipped = self._skipped.get(key, ())
        if sequence not in skipped:
            return False
        self._skipped[key].remove(sequence)
        self._reordered += 1
        return True

    def report(self) -> StreamReport:
        """Return the counts so far."""
        return StreamReport(
            requests=self._requests,
            distinct=len(self.latencies_ms),
            repeated=self._repeated,
            reordered=self._reordered,
            overlapping=self._overlapping,
            last_s=self._last_s,
        )

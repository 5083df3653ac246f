"""The figures of `penstock bench end-to-end`."""

import math
from collections.abc import Sequence

import msgspec

from penstock.tools.bench.end_to_end.record import StreamReport


class Faults(msgspec.Struct, kw_only=True):
    """What must not happen, summed over the streams of a run; `repeated` may happen."""

    lost: int = 0
    """Events that were accepted and did not arrive, although the receiver answered every request."""
    reordered: int = 0
    overlapping: int = 0
    repeated: int = 0

    def add(self, published: int, report: StreamReport) -> None:
        """Add a stream that should have arrived completely."""
        self.lost += published - report.distinct
        self.add_order(report)

    def add_order(self, report: StreamReport) -> None:
        """Add a stream that may be incomplete."""
        self.reordered += report.reordered
        self.overlapping += report.overlapping
        self.repeated += report.repeated

    @property
    def any(self) -> bool:
        """Whether a promise was broken."""
        return bool(self.lost or self.reordered or self.overlapping)


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A quick subscriber beside another one."""

    beside: str
    pool: str
    """`own` is the default; `shared` is one pool for both."""
    published: int
    delivered_in_time: int
    """Events that arrived while the neighbour was there; others arrived after it had been removed."""
    never_delivered: int
    """Events that had not arrived a minute after that; the scenes that follow are left out."""
    p50_ms: float
    p99_ms: float
    ratio: float
    """The p99 over that of the quick subscriber alone."""
    within: bool
    """Whether the p99 is below twice the lone one plus 100 ms."""


class EndToEndFigures(msgspec.Struct, kw_only=True):
    """The figures of one engine on one database."""

    deliveries_per_s: float
    """From the first publish call to the arrival of the last event."""
    cpu_us_per_delivery: float
    """User and system time of all of Penstock's processes, of Spark's, and of PostgreSQL's if it is on this machine."""
    cpu_us_by_part: dict[str, float]
    bare_per_s: float
    """The same bodies, posted to the same receiver by a bare client."""
    bare_cpu_us: float
    """User and system time of that client for each request, without the receiver's."""
    ratio: float
    """Deliveries per second over those of the bare client."""
    cpu_ratio: float
    """CPU time of a delivery over that of the bare client's request: it depends least on how busy the machine is."""
    published_per_s: float
    calm_p50_ms: float
    calm_p99_ms: float
    first_event_ms: float
    """From the publish call to the arrival of the first event after `penstock up` is ready."""
    hundredth_event_ms: float
    """The median of the last ten of the first hundred events, published one after another."""
    processes: int
    memory_mb: float
    """After the deliveries; shared pages are counted once."""
    row_versions: float | None
    """Rows inserted and updated in PostgreSQL for each delivery."""
    wal_bytes: float | None
    transactions: float | None
    isolation_p99_ratio: float | None
    """The largest ratio of the neighbours."""
    isolation: list[Neighbour]
    load_1m: float
    """The machine's load average before the run."""
    faults: Faults


def percentile_ms(latencies_ms: Sequence[float], percent: int) -> float:
    """Return a percentile of latencies; of none it is infinite."""
    ordered = sorted(latencies_ms)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else float("inf")

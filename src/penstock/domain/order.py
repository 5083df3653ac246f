"""Order per key: which jobs of a lane may be published, and which job holds which back at its delivery. Pure.

The jobs of a group stand in line by their positions. The ordered ones (BLOCK_ON_ERROR, NEXT_ON_ERROR) are one lane, the
IMMEDIATE ones another: these neither wait nor make others wait. Order is kept twice: a lane's jobs are published in
order (`first_of_lane`), and whatever the queue made of that, each is checked again when its delivery begins
(`holds_back`).

The SQL form is jobs/sql/order.sql, the Arrow form events/dispatch/spark_plan.py. Hypothesis compares both with this
module (tests/property/test_order_forms.py, tests/pipeline/test_dispatch_lane_plan.py).
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode

DEFAULT_GROUP = "default"
DEFAULT_SEQUENCE = 99

_FREE_RETURNS = 2
_FIRST_RETURN_S = 0.1
_LONGEST_RETURN_S = 5.0


def group_key(scope: str, group: str | None) -> str:
    """`{scope}:{group}`: the scope is the subscription, or the type of a job without one; no group is `default`."""
    return f"{scope}:{group or DEFAULT_GROUP}"


class Position(NamedTuple):
    """A job's place in its group: by sequence, then age, then id."""

    sequence: int
    created_at_ms: int
    id: str


class LaneKey(NamedTuple):
    """The jobs of a group that wait for each other, or those of it that do not."""

    group_key: str
    ordered: bool


def is_ordered(mode: DispatchMode) -> bool:
    """Whether jobs of a mode wait for each other."""
    return mode is not DispatchMode.IMMEDIATE


def lane_of(group_key: str, mode: DispatchMode) -> LaneKey:
    """The lane in which a job waits."""
    return LaneKey(group_key, is_ordered(mode))


class InLine(Protocol):
    """A job that waits to be published."""

    @property
    def position(self) -> Position:
        """Its place in its group."""
        ...

    @property
    def mode(self) -> DispatchMode:
        """Whether it passes a job that failed."""
        ...


Job = TypeVar("Job", bound=InLine)


def first_of_lane(jobs: Iterable[Job], blocker: Position | None, most: int) -> list[Job]:
    """Return the first jobs of a lane that may be published, in order.

    `jobs` are due and not expired. `blocker` is the first job of the group that `blocks`: BLOCK_ON_ERROR jobs stop
    there, others pass it.
    """
    free = (job for job in jobs if blocker is None or not _is_strict(job.mode) or job.position < blocker)
    return sorted(free, key=lambda job: job.position)[:most]


def share_of(most: int, lanes: int, per_lane: int) -> int:
    """How many of `most` jobs each lane may give: an equal share, at least one, at most `per_lane`."""
    return max(1, min(per_lane, most // lanes)) if lanes else 0


def is_expired(expires_at_ms: int | None, now_ms: int) -> bool:
    """Whether it is too late for a job."""
    return expires_at_ms is not None and expires_at_ms <= now_ms


def return_pause_s(returns: int) -> float:
    """Return how long a job that came back from the queue undelivered waits before it goes there again.

    Its delivery sends a job back whose turn it is not, and nothing says when that changes. So the first returns are
    free; then the pause doubles with every return, up to five seconds. Attempts do not count: retries have a delay of
    their own.
    """
    doublings = returns - _FREE_RETURNS - 1
    if doublings < 0:
        return 0.0
    return float(min(_FIRST_RETURN_S * 2.0 ** min(doublings, 10), _LONGEST_RETURN_S))


class Standing(msgspec.Struct, frozen=True):
    """A job as the others of its group see it."""

    position: Position
    mode: DispatchMode
    status: JobStatus
    was_tried: bool = False
    """Whether a delivery of it has begun before."""
    is_due: bool = True
    """False for a PENDING job that waits for its time, or for its next attempt."""


def blocks(other: Standing) -> bool:
    """Whether BLOCK_ON_ERROR jobs behind `other` must wait for it: it is in ERROR, or waits for its next attempt."""
    if other.status is JobStatus.ERROR:
        return True
    waits = other.status is JobStatus.PENDING and not other.is_due
    return waits and other.was_tried and is_ordered(other.mode)


def holds_back(other: Standing, job: Standing) -> bool:
    """Whether `job`, about to be delivered, must wait for `other` of its group.

    One delivery of an ordered lane is under way at a time. An earlier job that blocks, or that is still in line, holds
    BLOCK_ON_ERROR jobs back. NEXT_ON_ERROR jobs wait only for an earlier one of their kind that was never tried. A job
    created for later takes its place when it is due.
    """
    if not is_ordered(job.mode):
        return False
    if other.status is JobStatus.PROCESSING:
        return is_ordered(other.mode)
    if other.position > job.position:
        return False
    if blocks(other):
        return _is_strict(job.mode)
    in_line = other.status is JobStatus.QUEUED or (other.status is JobStatus.PENDING and other.is_due)
    if not in_line or not is_ordered(other.mode):
        return False
    return _is_strict(job.mode) or (other.mode is DispatchMode.NEXT_ON_ERROR and not other.was_tried)


def _is_strict(mode: DispatchMode) -> bool:
    return mode is DispatchMode.BLOCK_ON_ERROR

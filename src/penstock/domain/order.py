"""Order per key: which jobs of a lane may be published, and which jobs hold others back at delivery.

The jobs of a group are sorted by position. The ordered ones (BLOCK_ON_ERROR, NEXT_ON_ERROR) form one lane, the
IMMEDIATE ones another: these neither wait nor make others wait. Order is kept twice: a lane's jobs are published in
order (`first_of_lane`), and each is checked again when its delivery begins, because the queue may reorder them
(`holds_back`).

The SQL form is events/store/sql/order.sql, the Arrow form events/dispatch/spark/plan.py. Property tests compare both
with this module (tests/property/test_order_forms.py, tests/pipeline/test_dispatch_lane_plan.py).
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode

DEFAULT_GROUP = "default"
DEFAULT_SEQUENCE = 99

_TIER = 2**32
_FREE_RETURNS = 2
_FIRST_RETURN_S = 0.1
_LONGEST_RETURN_S = 5.0


def group_key(scope: str, group: str | None) -> str:
    """Return `{scope}:{group}`: the scope is the subscription, or the type of a job without one."""
    return f"{scope}:{group or DEFAULT_GROUP}"


def tiered_sequence(sequence: int, *, high_priority: bool) -> int:
    """Return the sequence that a job is stored with: those of high priority come before all others of their group.

    A sequence that users choose lies within ±2³¹, so that the two tiers do not meet.
    """
    return sequence - _TIER if high_priority else sequence


def is_high_priority(stored_sequence: int) -> bool:
    """Return whether a stored sequence is one of high priority."""
    return stored_sequence < -_TIER // 2


def chosen_sequence(stored_sequence: int) -> int:
    """Return the sequence that was chosen, without the tier."""
    return stored_sequence + _TIER if is_high_priority(stored_sequence) else stored_sequence


class Position(NamedTuple):
    """A job's place in its group: by sequence, which has the priority in it, then age, then id."""

    sequence: int
    created_at_ms: int
    id: str


class LaneKey(NamedTuple):
    """A group's ordered jobs, or its unordered ones."""

    group_key: str
    ordered: bool


def is_ordered(mode: DispatchMode) -> bool:
    """Return whether jobs of a mode wait for each other."""
    return mode is not DispatchMode.IMMEDIATE


def lane_of(group_key: str, mode: DispatchMode) -> LaneKey:
    """Return the lane in which a job waits."""
    return LaneKey(group_key, is_ordered(mode))


class InLine(Protocol):
    """A job that waits to be published."""

    @property
    def position(self) -> Position:
        """Its place in its group."""
        ...

    @property
    def mode(self) -> DispatchMode:
        """Whether it waits behind a failed job."""
        ...


Job = TypeVar("Job", bound=InLine)


def first_of_lane(jobs: Iterable[Job], blocker: Position | None, most: int) -> list[Job]:
    """Return the first jobs of a lane that may be published, in order.

    `jobs` are due and not expired. `blocker` is the first job of the group that `blocks`: BLOCK_ON_ERROR jobs stop
    there, others pass it.
    """
    free = (job for job in jobs if blocker is None or not _is_strict(job.mode) or job.position < blocker)
    return sorted(free, key=lambda job: job.position)[:most]


def is_expired(expires_at_ms: int | None, now_ms: int) -> bool:
    """Return whether it is too late to deliver a job."""
    return expires_at_ms is not None and expires_at_ms <= now_ms


def return_pause_s(returns: int) -> float:
    """Return how long a job that came back from the queue undelivered waits before it is published again.

    A delivery sends a job back when it is not yet the job's turn, and nothing signals when that changes. So the first
    returns are free; then the pause doubles with every return, up to five seconds. Attempts do not count: retries have
    their own delay.
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
    """Whether a delivery of it has started before."""
    is_due: bool = True
    """False for a PENDING job that waits for its scheduled time or its next attempt."""


def blocks(other: Standing) -> bool:
    """Return whether BLOCK_ON_ERROR jobs behind `other` wait: it is in ERROR, or waits for its next attempt."""
    if other.status is JobStatus.ERROR:
        return True
    waits = other.status is JobStatus.PENDING and not other.is_due
    return waits and other.was_tried and is_ordered(other.mode)


def holds_back(other: Standing, job: Standing) -> bool:
    """Return whether `job`, about to be delivered, must wait for `other` of its group.

    An ordered lane has one delivery in progress at a time. An earlier job that blocks, or that still waits its turn,
    holds back BLOCK_ON_ERROR jobs. A NEXT_ON_ERROR job waits only for an earlier one that was never tried. A job
    scheduled for later takes its place when it is due.
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

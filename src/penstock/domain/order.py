"""Which PENDING jobs may be published now, in which order (ORDER-1 to ORDER-8).

Jobs of a group wait in up to two lanes: the ordered ones (BLOCK_ON_ERROR, NEXT_ON_ERROR) in one, the IMMEDIATE ones in
another, since they neither wait nor make wait. Lanes take turns. Plain values in and out: the inline scheduler, the
databases' claims and Spark follow these same rules.

Whether a job that reached its delivery may be delivered: order is kept there too (ORDER-5).
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from penstock.domain.job_state import JobStatus
from penstock.domain.pointer import DispatchMode

DEFAULT_GROUP = "default"
DEFAULT_SEQUENCE = 99


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


class PendingJob(msgspec.Struct, frozen=True):
    """What planning has to know of a PENDING job."""

    id: str
    group_key: str
    mode: DispatchMode
    created_at_ms: int
    due_at_ms: int
    sequence: int = DEFAULT_SEQUENCE
    expires_at_ms: int | None = None
    subscription_id: str | None = None
    was_tried: bool = False
    """Whether a delivery of it has begun before: it waits for its next attempt, and keeps its place meanwhile."""

    @property
    def position(self) -> Position:
        """Its place in its group."""
        return Position(self.sequence, self.created_at_ms, self.id)

    @property
    def lane(self) -> LaneKey:
        """The lane it waits in."""
        return LaneKey(self.group_key, self.mode is not DispatchMode.IMMEDIATE)


class Circumstances(msgspec.Struct, frozen=True):
    """What keeps PENDING jobs back, beside themselves."""

    errors: Mapping[str, Position] = msgspec.field(default_factory=dict)
    """Where the first ERROR job of a group stands."""
    in_flight: AbstractSet[str] = frozenset()
    """Groups of which ordered jobs are being published."""
    paused: AbstractSet[str] = frozenset()
    """Subscriptions that take nothing at the moment."""
    turns: Mapping[LaneKey, int] = msgspec.field(default_factory=dict)
    """When lanes were served last: the lowest number goes first, then the lowest key."""


def plan(
    jobs: Iterable[PendingJob], circumstances: Circumstances, now_ms: int, *, most: int, per_group: int
) -> list[PendingJob]:
    """The jobs to publish now: each group's in order, the first of every lane before the second of any.

    At most `most` lanes are served, each with the same share of `most`, but one job at least and `per_group` at most.
    """
    waiting = list(jobs)
    blockers = _first_blockers(waiting, circumstances.errors, now_ms)
    lanes: dict[LaneKey, list[PendingJob]] = {}
    for job in waiting:
        if _may_go(job, circumstances, blockers, now_ms):
            lanes.setdefault(job.lane, []).append(job)
    served = sorted(lanes, key=lambda lane: (circumstances.turns.get(lane, 0), lane))[:most]
    share = share_of(most, len(served), per_group)
    runs = [sorted(lanes[lane], key=lambda job: job.position)[:share] for lane in served]
    return [run[rank] for rank in range(share) for run in runs if rank < len(run)]


def share_of(most: int, lanes: int, per_group: int) -> int:
    """How many jobs each of so many lanes may give."""
    return max(1, min(per_group, most // lanes)) if lanes else 0


def _first_blockers(jobs: Iterable[PendingJob], errors: Mapping[str, Position], now_ms: int) -> Mapping[str, Position]:
    """Where the first job of each group stands that later BLOCK_ON_ERROR jobs must not pass."""
    first = dict(errors)
    for job in jobs:
        if job.was_tried and job.due_at_ms > now_ms and job.lane.ordered:
            first[job.group_key] = min(job.position, first.get(job.group_key, job.position))
    return first


def _may_go(job: PendingJob, circumstances: Circumstances, blockers: Mapping[str, Position], now_ms: int) -> bool:
    if job.due_at_ms > now_ms or (job.expires_at_ms is not None and job.expires_at_ms <= now_ms):
        return False
    if job.subscription_id in circumstances.paused:
        return False
    match job.mode:
        case DispatchMode.IMMEDIATE:
            return True
        case DispatchMode.NEXT_ON_ERROR:
            return job.group_key not in circumstances.in_flight
        case DispatchMode.BLOCK_ON_ERROR:
            blocker = blockers.get(job.group_key)
            return job.group_key not in circumstances.in_flight and (blocker is None or job.position < blocker)


class Neighbour(msgspec.Struct, frozen=True):
    """A job of a group as its neighbours see it."""

    position: Position
    mode: DispatchMode
    status: JobStatus
    was_tried: bool = False
    is_due: bool = True


def holds_back(other: Neighbour, job: Neighbour) -> bool:
    """Whether `job`, about to be delivered, must wait for `other` of its group.

    An earlier BLOCK_ON_ERROR or NEXT_ON_ERROR job that was not tried yet holds back the ones behind it. One that was
    tried holds back BLOCK_ON_ERROR jobs only, and so does one in ERROR. A job made for later takes its place when due.
    """
    if DispatchMode.IMMEDIATE in (job.mode, other.mode) and other.status is not JobStatus.ERROR:
        return False
    if job.mode is DispatchMode.IMMEDIATE:
        return False
    if other.status is JobStatus.PROCESSING:
        return True
    if other.position > job.position:
        return False
    strict = job.mode is DispatchMode.BLOCK_ON_ERROR
    match other.status:
        case JobStatus.ERROR:
            return strict
        case JobStatus.PENDING if not other.is_due:
            return strict and other.was_tried
        case JobStatus.PENDING | JobStatus.QUEUED:
            return strict or (other.mode is DispatchMode.NEXT_ON_ERROR and not other.was_tried)
        case _:
            return False


def may_be_delivered(job: Neighbour, others: Iterable[Neighbour]) -> bool:
    """Whether none of the others of its group holds a job back."""
    return not any(holds_back(other, job) for other in others)

"""Groups of jobs in every state at random, and what the rules of `core.order` say about them."""

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from penstock.domain.job_state import JobStatus
from penstock.domain.order import LaneKey, Position, Standing, blocks, first_of_lane, holds_back, is_expired, lane_of
from penstock.domain.pointer import DispatchMode
from penstock.events.store.database import LaneJob

NOW_MS = 1000
GROUPS = ("s:a", "s:b", "t:ä", "default")
EXPIRES_AT_MS = (None, None, NOW_MS, NOW_MS + 1)
# A PENDING job is there twice: due, and not yet.
STATUSES = (*((status, True) for status in JobStatus), (JobStatus.PENDING, False), (JobStatus.PENDING, True))


class Job(msgspec.Struct, frozen=True):
    """A job somewhere on its way."""

    id: str
    group_key: str
    mode: DispatchMode
    status: JobStatus
    is_due: bool
    sequence: int
    created_at_ms: int
    expires_at_ms: int | None
    was_tried: bool

    @property
    def lane(self) -> LaneKey:
        return lane_of(self.group_key, self.mode)

    @property
    def position(self) -> Position:
        return Position(self.sequence, self.created_at_ms, self.id)

    @property
    def standing(self) -> Standing:
        return Standing(self.position, self.mode, self.status, self.was_tried, self.is_due)

    @property
    def in_lane(self) -> LaneJob:
        return LaneJob(self.id, self.mode, self.sequence, self.created_at_ms, 0, "P", 0, 0, 0)

    @property
    def is_candidate(self) -> bool:
        """Whether it could be published, if nothing blocks it."""
        return self.status is JobStatus.PENDING and self.is_due and not is_expired(self.expires_at_ms, NOW_MS)


def jobs_of(codes: list[int]) -> list[Job]:
    """Jobs whose fields are the digits of numbers: a few draws instead of hundreds."""
    return [_job_of(number, code) for number, code in enumerate(codes)]


def _job_of(number: int, code: int) -> Job:
    code, group = divmod(code, len(GROUPS))
    code, mode = divmod(code, len(DispatchMode))
    code, status = divmod(code, len(STATUSES))
    code, expires = divmod(code, len(EXPIRES_AT_MS))
    code, created_at_ms = divmod(code, 3)
    code, was_tried = divmod(code, 2)
    return Job(
        id=f"job {number:02}",
        group_key=GROUPS[group],
        mode=list(DispatchMode)[mode],
        status=STATUSES[status][0],
        is_due=STATUSES[status][1],
        sequence=(1, 99)[code % 2],
        created_at_ms=created_at_ms,
        expires_at_ms=EXPIRES_AT_MS[expires],
        was_tried=bool(was_tried),
    )


JOBS = st.lists(st.integers(0, 4 * 3 * len(STATUSES) * 4 * 3 * 2 * 2 - 1), max_size=16).map(jobs_of)


def blocker_of(jobs: Sequence[Job], group_key: str) -> Position | None:
    """Where the first job of a group stands that BLOCK_ON_ERROR jobs must not pass."""
    return min((job.position for job in jobs if job.group_key == group_key and blocks(job.standing)), default=None)


def run_of(jobs: Sequence[Job], lane: LaneKey, most: int) -> list[str]:
    """The jobs that a lane may give, in order."""
    candidates = [job.in_lane for job in jobs if job.lane == lane and job.is_candidate]
    blocker = blocker_of(jobs, lane.group_key) if lane.ordered else None
    return [job.id for job in first_of_lane(candidates, blocker, most)]


def is_held_back(jobs: Sequence[Job], job: Job) -> bool:
    """Whether a job, about to be delivered, must wait for another of its group."""
    others = [other for other in jobs if other.group_key == job.group_key and other is not job]
    return any(holds_back(other.standing, job.standing) for other in others)

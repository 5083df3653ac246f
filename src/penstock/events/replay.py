"""A replay: jobs that are over, delivered once more. What was asked, and the copy that is delivered.

A copy stands where its original stands in its group: same key, sequence and age. So copies keep their originals' order,
go before younger jobs that wait, and a copy of a job in ERROR takes its place (docs/howto/replay-a-day.md).
"""

from collections.abc import Mapping

import msgspec

from penstock.domain.errors import InvalidArgument
from penstock.domain.job import Attempt, DispatchJob, NewJob
from penstock.domain.job_state import JobStatus

COPY_JOINT = "~"
REPLAY_HEADER = "penstock-replay"

REPLAYABLE = (JobStatus.COMPLETED, JobStatus.ERROR, JobStatus.EXPIRED)
"""What can be delivered once more: others are on their way, or were given up by somebody."""
FAILED = (JobStatus.ERROR, JobStatus.EXPIRED)


class ReplaySelection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs: all that is given has to fit. Times are of the event, or of the job if it has none."""

    from_ms: int | None = None
    to_ms: int | None = None
    subscription_id: str | None = None
    key: str | None = None
    failed_since_ms: int | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in msgspec.structs.astuple(self)):
            raise InvalidArgument("say what to replay: a time range, a subscription, a key, or what failed since when")
        if self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms:
            raise InvalidArgument("there is no time between --from and --to: give an earlier and a later moment")


class ReplayOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    selection: ReplaySelection
    direct: bool = False
    per_s: int | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay as it is kept."""

    id: str
    order: ReplayOrder
    total: int
    requested_at_ms: int
    run: int
    stop_asked: bool
    finished_at_ms: int | None


class ReplayProgress(msgspec.Struct, frozen=True):
    """How far a replay is: jobs done for good, given up in this run, and held back behind those."""

    done: int = 0
    failed: int = 0
    held_back: int = 0

    @property
    def looked_at(self) -> int:
        """All that this run need not look at any more."""
        return self.done + self.failed + self.held_back


class ReplayAttempt(msgspec.Struct, frozen=True):
    """A delivery of a replay."""

    job_id: str
    attempt: Attempt


def copy_id(job_id: str, replay_id: str) -> str:
    """The id of a job's copy; that of a copy's copy names the first original."""
    return f"{job_id.partition(COPY_JOINT)[0]}{COPY_JOINT}{replay_id}"


def copy_of(job: DispatchJob, replay_id: str, due_ms: int | None) -> NewJob:
    """The job that brings a job's contents once more, through the queue; not before `due_ms`."""
    return NewJob(
        id=copy_id(job.id, replay_id),
        target=job.target,
        created_at_ms=job.created_at_ms,
        type=job.type,
        event_id=job.event_id,
        subscription_id=job.subscription_id,
        tenant=job.tenant,
        group=job.group,
        sequence=job.sequence,
        mode=job.mode,
        pool=job.pool,
        payload=job.payload,
        content_type=job.content_type,
        headers=_headers(job, replay_id),
        scheduled_for_ms=due_ms,
    )


def as_copy(job: DispatchJob, replay_id: str, number: int) -> DispatchJob:
    """A job as its delivery number `number` of a replay sees it."""
    return msgspec.structs.replace(
        job,
        id=copy_id(job.id, replay_id),
        headers=_headers(job, replay_id),
        delivery_count=number,
        attempt_count=0,
        expires_at_ms=None,
    )


def _headers(job: DispatchJob, replay_id: str) -> Mapping[str, str]:
    return {**job.headers, REPLAY_HEADER: replay_id}

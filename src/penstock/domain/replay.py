"""A replay delivers finished jobs once more. This is the one rule for the API, the web page, the CLI and Spark.

A copy stands where its original stands in its group: same key, sequence and age. So copies keep their originals' order,
go before younger jobs that wait, and a copy of a job in ERROR takes its place. To the receiver a copy is the same
webhook again, with the same `webhook-id`, and says so in a header (docs/decisions/0025-one-replay-rule.md).
"""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.domain.ids import COPY_JOINT
from penstock.domain.job import Attempt, DispatchJob, NewJob
from penstock.domain.job_state import JobStatus

REPLAY_HEADER = "penstock-replay"

REPLAYABLE = (JobStatus.COMPLETED, JobStatus.ERROR, JobStatus.EXPIRED)
"""What can be delivered once more: others are on their way, or were cancelled by a person."""
FAILED = (JobStatus.ERROR, JobStatus.EXPIRED)


class ReplaySelection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs: everything that is given has to match. Times are of the event, or of the job if it has none."""

    from_ms: int | None = None
    to_ms: int | None = None
    subscription_id: str | None = None
    key: str | None = None
    failed_since_ms: int | None = None
    status: JobStatus | None = None
    type: str | None = None
    group_key: str | None = None

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """The statuses of the jobs it takes."""
        wanted = REPLAYABLE if self.failed_since_ms is None else FAILED
        return tuple(status for status in wanted if self.status in (None, status))


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    selection: ReplaySelection
    direct: bool = False
    per_s: int | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A replay as it is kept."""

    id: str
    order: ReplayRequest
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


class Copied(msgspec.Struct, frozen=True):
    """What copying jobs came to: how many copies were created, and how many of them replace a job in ERROR."""

    copies: int = 0
    in_error: int = 0
    goes_on: bool = True
    """False if the replay is to stop."""


class ReplayAttempt(msgspec.Struct, frozen=True):
    """A delivery of a replay."""

    job_id: str
    attempt: Attempt


def original_id(job_id: str) -> str:
    """Return the id of the job that this one is a copy of, or its own: what all deliveries of one webhook share."""
    return job_id.partition(COPY_JOINT)[0]


def copy_id(job_id: str, replay_id: str) -> str:
    """Return the id of a job's copy; that of a copy's copy names the first original."""
    return f"{original_id(job_id)}{COPY_JOINT}{replay_id}"


def last_copies(jobs: Iterable[DispatchJob]) -> list[DispatchJob]:
    """Of each job and its copies keep the last, so that a replay delivers no webhook twice; in the order of groups."""
    last = {original_id(job.id): job for job in sorted(jobs, key=lambda job: job.id)}
    return sorted(last.values(), key=lambda job: (job.sequence, job.created_at_ms, job.id))


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

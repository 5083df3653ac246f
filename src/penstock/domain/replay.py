"""A replay delivers finished jobs again. The API, the web page, the CLI and Spark all follow this rule.

A copy has its original's place in its group: same key, sequence and age. So copies keep their originals' order, go
before younger jobs that wait, and a copy of a job in ERROR replaces it. The receiver gets the same webhook again, with
the same `webhook-id` and a header that marks it as a replay (docs/decisions/0025-one-replay-rule.md).
"""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.domain.ids import COPY_JOINT
from penstock.domain.job import Attempt, DispatchJob, NewJob
from penstock.domain.job_state import JobStatus

REPLAY_HEADER = "penstock-replay"

REPLAYABLE = (JobStatus.COMPLETED, JobStatus.ERROR, JobStatus.EXPIRED)
"""Jobs with another status are still in progress, or were cancelled by a person."""
FAILED = (JobStatus.ERROR, JobStatus.EXPIRED)


class ReplaySelection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs to replay: all given fields must match. Times are the event's, or the job's if it has no event."""

    from_ms: int | None = None
    to_ms: int | None = None
    subscription_id: str | None = None
    key: str | None = None
    failed_since_ms: int | None = None
    status: JobStatus | None = None
    type: str | None = None
    group_key: str | None = None
    sql: str | None = None
    """A query over the lake, whose column `job_id` names jobs or copies of them."""

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """The statuses of the jobs it takes."""
        wanted = REPLAYABLE if self.failed_since_ms is None else FAILED
        return tuple(status for status in wanted if self.status in (None, status))


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to replay jobs."""

    selection: ReplaySelection
    direct: bool = False
    per_s: int | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A stored replay."""

    id: str
    request: ReplayRequest
    total: int
    requested_at_ms: int
    run: int
    stop_asked: bool
    finished_at_ms: int | None


class ReplayProgress(msgspec.Struct, frozen=True):
    """The progress of a replay: jobs finished, failed in this run, and held back behind those."""

    done: int = 0
    failed: int = 0
    held_back: int = 0

    @property
    def looked_at(self) -> int:
        """All jobs that this run has finished with."""
        return self.done + self.failed + self.held_back


class Copied(msgspec.Struct, frozen=True):
    """The result of copying jobs: the number of copies, and how many of them replace a job in ERROR."""

    copies: int = 0
    in_error: int = 0
    goes_on: bool = True
    """False if the replay is to stop."""


class ReplayAttempt(msgspec.Struct, frozen=True):
    """A delivery of a replay."""

    job_id: str
    attempt: Attempt


def original_id(job_id: str) -> str:
    """Return the id of the first original of a job, or its own: all deliveries of one webhook share it."""
    return job_id.partition(COPY_JOINT)[0]


def copy_id(job_id: str, replay_id: str) -> str:
    """Return the id of a job's copy; a copy's copy is named after the first original."""
    return f"{original_id(job_id)}{COPY_JOINT}{replay_id}"


def last_copies(jobs: Iterable[DispatchJob]) -> list[DispatchJob]:
    """Keep the last of each job and its copies, so no webhook is delivered twice; sort by position in the group."""
    last = {original_id(job.id): job for job in sorted(jobs, key=lambda job: job.id)}
    return sorted(last.values(), key=lambda job: (job.sequence, job.created_at_ms, job.id))


def copy_of(job: DispatchJob, replay_id: str, due_ms: int | None) -> NewJob:
    """Return the job that delivers a job's contents again through the queue, not before `due_ms`."""
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
        key_sequence=job.key_sequence,
    )


def as_copy(job: DispatchJob, replay_id: str, number: int) -> DispatchJob:
    """Return a job as delivery `number` of a replay sends it."""
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

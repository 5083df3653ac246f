"""Deliveries of jobs: whether they may begin, and how they ended, many at a time (ORDER-5, JOB-STATUS-1).

To begin is to read: that a delivery is under way is known to the process that makes it, and nowhere else. Its end is
written, if the job has not moved on. A job that may not begin is explained in a transaction that locks the lanes of the
jobs it moves before it moves any.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto

import msgspec

from penstock.domain.event import StoredEvent
from penstock.domain.job import Attempt, DispatchJob
from penstock.domain.job_state import FINAL, TRANSITIONS, JobStatus
from penstock.domain.order import is_expired
from penstock.events.store.database import RepositoryPart, Row, Transaction, reads_few, writes
from penstock.events.store.repository.lanes import move, move_and_wake, wake_waiting
from penstock.events.store.statements import STATUS_OF, StoredState, event_of, job_of


class Beginning(Enum):
    """What a job that the queue brought may do."""

    BEGUN = auto()
    """Its delivery is under way from now on: deliver it, and finish it."""
    HELD_BACK = auto()
    """An earlier job of its group is not finished, or its subscription is paused: it is PENDING again."""
    BUSY = auto()
    """Another delivery of it, or of its lane, is under way."""
    NOT_DUE = auto()
    """It is PENDING and waits for a later moment; it will be published then."""
    FINAL = auto()
    """It is finished; there is nothing to deliver."""
    UNKNOWN = auto()
    """There is no such job."""


class Begin(msgspec.Struct, frozen=True):
    """The answer to a delivery that wants to begin, with the job as it is now, and its event if it has begun."""

    what: Beginning
    job: DispatchJob | None = None
    event: StoredEvent | None = None


class DeliveryLease(msgspec.Struct, frozen=True):
    """When deliveries want to begin, and until when jobs that were not marked as published count as on their way."""

    now_ms: int
    until_ms: int


class Done(msgspec.Struct, frozen=True):
    """The job is finished: COMPLETED, ERROR or EXPIRED."""

    status: JobStatus


class TryLater(msgspec.Struct, frozen=True):
    """The job is PENDING again and will be published when due: its pointer can be acknowledged."""

    due_at_ms: int


class TryFromQueue(msgspec.Struct, frozen=True):
    """The job is QUEUED again: the queue keeps its pointer and brings it once more, before the lease ends."""

    lease_until_ms: int


Verdict = Done | TryLater | TryFromQueue


class EndedDelivery(msgspec.Struct, frozen=True):
    """A delivery that ended: the attempt has its number, the verdict says what becomes of the job."""

    job_id: str
    attempt: Attempt
    verdict: Verdict
    now_ms: int

    def row(self) -> Row:
        """Return the columns of the statement `finish_jobs`."""
        attempt, verdict = self.attempt, self.verdict
        state, due_at_ms, lease_until_ms = _kept_as(verdict)
        return (
            self.job_id,
            attempt.number,
            int(state),
            int(attempt.spends),
            int(isinstance(verdict, TryLater)),
            due_at_ms,
            lease_until_ms,
            self.now_ms,
            self.now_ms if isinstance(verdict, Done) else None,
            attempt.outcome.value,
            attempt.at_ms,
            attempt.duration_ms,
            attempt.status_code,
            attempt.response,
            attempt.error,
        )


class DeliveryBegins(msgspec.Struct, frozen=True):
    """What may begin."""

    begun: Mapping[str, Begin]
    """By id. Jobs that are not here may not begin: `explain` says why."""
    subscription_changes: int
    """How often subscriptions had changed until now."""


class JobDeliveries(RepositoryPart):
    """Deliveries of jobs: they begin, and they end."""

    @reads_few
    def begin(self, tx: Transaction, job_ids: Collection[str], now_ms: int) -> DeliveryBegins:
        """Return those of the jobs that the queue brought whose turn it is: of an ordered lane, one."""
        begun, ((changes,),) = tx.together(("begin_jobs", _beginning(job_ids, now_ms)), ("subscription_changes", {}))
        return DeliveryBegins(_with_events(tx, begun), changes)

    @writes
    def finish(self, tx: Transaction, ended: Sequence[EndedDelivery]) -> list[bool]:
        """End deliveries; return of each whether its end was kept: it is not if the job has moved on meanwhile."""
        left = set(tx.finish_jobs([each.row() for each in ended]))
        wake_waiting(tx, [job_id for job_id, _ in left])
        if any(isinstance(each.verdict, TryLater) for each in ended):
            # Whoever publishes may not know yet when they are due.
            tx.announce()
        return [_taken(left, (each.job_id, each.attempt.number)) for each in ended]

    @writes
    def explain(self, tx: Transaction, job_ids: Collection[str], lease: DeliveryLease) -> dict[str, Begin]:
        """Say why jobs did not begin, or begin them now; those whose turn it is not go back to PENDING."""
        tx.lock_lanes({job.group_key for job in _jobs_among(tx, job_ids).values() if job.status not in FINAL})
        # Read again: a scheduler that had the lanes may have marked jobs as QUEUED since.
        jobs = _jobs_among(tx, job_ids)
        queued = _in_queue(tx, jobs, lease)
        late = [place for place in queued if is_expired(jobs[place[0]].expires_at_ms, lease.now_ms)]
        move_and_wake(tx, "expire_jobs", late, now_ms=lease.now_ms)
        on_time = [place for place in queued if place not in late]
        ids = [job_id for job_id, _ in on_time]
        answers = _with_events(tx, tx.all("begin_jobs", **_beginning(ids, lease.now_ms)))
        waiting = [place for place in on_time if place[0] not in answers]
        held_back = {job.id for job in move_and_wake(tx, "hold_back", waiting, now_ms=lease.now_ms)}
        for job_id, job in _jobs_among(tx, jobs.keys() - answers.keys()).items():
            answers[job_id] = Begin(Beginning.HELD_BACK if job_id in held_back else _standing(job), job)
        return {job_id: answers.get(job_id, Begin(Beginning.UNKNOWN)) for job_id in job_ids}


def _in_queue(tx: Transaction, jobs: Mapping[str, DispatchJob], lease: DeliveryLease) -> list[Row]:
    """Return id and group key of the jobs that are QUEUED, with those that are so because the queue brought them."""
    pending = [_place(job) for job in jobs.values() if job.status is JobStatus.PENDING]
    queued = [_place(job) for job in jobs.values() if job.status is JobStatus.QUEUED]
    # The scheduler has not marked these yet, or assumes that their publication failed. It knows which of them are due:
    # by the clock of this process they may not be so yet, and to answer that would end the only pointer.
    arrived = {job.id for job in move(tx, "arrive", pending, now_ms=lease.now_ms, lease_until_ms=lease.until_ms)}
    return queued + [place for place in pending if place[0] in arrived]


def _beginning(job_ids: Collection[str], now_ms: int) -> dict[str, object]:
    return {"ids": list(job_ids), "now_ms": now_ms}


def _with_events(tx: Transaction, rows: list[Row]) -> dict[str, Begin]:
    """Return jobs that begin, as they are in this delivery, with their events."""
    jobs = [_in_delivery(job_of(row)) for row in rows]
    ids = sorted({job.event_id for job in jobs if job.event_id is not None})
    events = {event.id: event for event in map(event_of, tx.all("events_among", ids=ids) if ids else ())}
    return {job.id: Begin(Beginning.BEGUN, job, events.get(job.event_id or "")) for job in jobs}


def _in_delivery(job: DispatchJob) -> DispatchJob:
    return msgspec.structs.replace(job, status=JobStatus.PROCESSING, delivery_count=job.delivery_count + 1)


def _taken(left: set[Row], delivery: Row) -> bool:
    """Take a delivery out of those that are left; return whether it was there."""
    there = delivery in left
    left.discard(delivery)
    return there


def _jobs_among(tx: Transaction, job_ids: Collection[str]) -> dict[str, DispatchJob]:
    rows = tx.all("jobs_among", ids=list(job_ids)) if job_ids else []
    return {job.id: job for job in map(job_of, rows)}


def _place(job: DispatchJob) -> Row:
    return job.id, job.group_key


def _standing(job: DispatchJob) -> Beginning:
    if job.status in FINAL:
        return Beginning.FINAL
    # The pointer of a job that is QUEUED must stay, whatever the reason is: it may be the only one.
    return Beginning.BUSY if job.status in (JobStatus.PROCESSING, JobStatus.QUEUED) else Beginning.NOT_DUE


def _kept_as(verdict: Verdict) -> tuple[StoredState, int | None, int | None]:
    match verdict:
        case TryLater(due_at_ms):
            return StoredState.WAITING, due_at_ms, None
        case TryFromQueue(lease_until_ms):
            return StoredState.QUEUED, None, lease_until_ms
        case Done(status) if status in FINAL and (JobStatus.PROCESSING, status) in TRANSITIONS:
            return StoredState(STATUS_OF.index(status)), None, None
        case Done(status):
            raise ValueError(f"a delivery cannot end as {status}")

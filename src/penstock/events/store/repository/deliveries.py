"""The delivery of a job: whether it may begin, and how it ended (ORDER-5, JOB-STATUS-1)."""

from enum import Enum, auto

import msgspec

from penstock.domain.job import Attempt, DispatchJob
from penstock.domain.job_state import FINAL, TRANSITIONS, JobStatus
from penstock.domain.order import is_expired
from penstock.events.store.database import RepositoryPart, Transaction, writes, writes_one
from penstock.events.store.repository.lanes import move, move_and_wake, wake_waiting
from penstock.events.store.statements import STATUS_OF, StoredState, job_of


class Beginning(Enum):
    """What a job that the queue brought may do."""

    BEGUN = auto()
    """It is PROCESSING now: deliver it, and finish it."""
    HELD_BACK = auto()
    """An earlier job of its group is not finished, or its subscription is paused: it is PENDING again."""
    BUSY = auto()
    """Another delivery of it is under way."""
    NOT_DUE = auto()
    """It is PENDING and waits for a later moment; it will be published then."""
    FINAL = auto()
    """It is finished; there is nothing to deliver."""
    UNKNOWN = auto()
    """There is no such job."""


class Begin(msgspec.Struct, frozen=True):
    """The answer to a delivery that wants to begin, with the job as it is now."""

    what: Beginning
    job: DispatchJob | None = None


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


class JobDeliveries(RepositoryPart):
    """Deliveries of jobs: they begin, and they end."""

    async def begin(self, job_id: str, owner: str, now_ms: int, lease_until_ms: int) -> Begin:
        """Begin the delivery of a job that the queue brought: it is PROCESSING now, or the answer says why not."""
        begun = await self._begin_queued(job_id, owner, now_ms, lease_until_ms)
        return begun or await self._begin_or_explain(job_id, owner, now_ms, lease_until_ms)

    @writes_one
    def _begin_queued(self, tx: Transaction, job_id: str, owner: str, now_ms: int, lease_until_ms: int) -> Begin | None:
        """Begin in the usual case, in one statement: a QUEUED job whose turn it is."""
        return _begin(tx, job_id, owner, now_ms, lease_until_ms)

    @writes
    def _begin_or_explain(self, tx: Transaction, job_id: str, owner: str, now_ms: int, lease_until_ms: int) -> Begin:
        """Begin a delivery, or say why not; a job whose turn it is not goes back to PENDING."""
        row = tx.first("job", id=job_id)
        if row is None:
            return Begin(Beginning.UNKNOWN)
        job = job_of(row)
        if job.status is JobStatus.PENDING and job.due_at_ms <= now_ms:
            _arrive(tx, job, now_ms, lease_until_ms)
            job = _now(tx, job)
        if job.status is JobStatus.QUEUED:
            if begun := _begin(tx, job_id, owner, now_ms, lease_until_ms):
                return begun
            if is_expired(job.expires_at_ms, now_ms):
                move_and_wake(tx, "expire_jobs", [(job.id, job.group_key)], now_ms=now_ms)
            elif move_and_wake(tx, "hold_back", [(job.id, job.group_key)], now_ms=now_ms):
                return Begin(Beginning.HELD_BACK, _now(tx, job))
            job = _now(tx, job)
        return Begin(_standing(job), job)

    @writes_one
    def finish(self, tx: Transaction, job_id: str, attempt: Attempt, verdict: Verdict, now_ms: int) -> bool:
        """End the delivery whose number the attempt has; False, and nothing kept, when the job has moved on since."""
        state, due_at_ms, lease_until_ms = _kept_as(verdict)
        ended = tx.finish_job(
            id=job_id,
            state=int(state),
            spent=int(attempt.spends),
            rounds=int(isinstance(verdict, TryLater)),
            due_at_ms=due_at_ms,
            lease_until_ms=lease_until_ms,
            now_ms=now_ms,
            finished_at_ms=now_ms if isinstance(verdict, Done) else None,
            **msgspec.structs.asdict(attempt),
        )
        if ended:
            wake_waiting(tx, [job_id])
        return ended


def _begin(tx: Transaction, job_id: str, owner: str, now_ms: int, lease_until_ms: int) -> Begin | None:
    row = tx.first("begin_job", id=job_id, owner=owner, now_ms=now_ms, lease_until_ms=lease_until_ms)
    return None if row is None else Begin(Beginning.BEGUN, job_of(row))


def _arrive(tx: Transaction, job: DispatchJob, now_ms: int, lease_until_ms: int) -> None:
    # The queue brought it, so it is in the queue: the scheduler has not marked it yet, or assumes that it failed.
    move(tx, "arrive", [(job.id, job.group_key)], now_ms=now_ms, lease_until_ms=lease_until_ms)


def _now(tx: Transaction, job: DispatchJob) -> DispatchJob:
    row = tx.first("job", id=job.id)
    return job if row is None else job_of(row)


def _standing(job: DispatchJob) -> Beginning:
    if job.status in FINAL:
        return Beginning.FINAL
    return Beginning.BUSY if job.status is JobStatus.PROCESSING else Beginning.NOT_DUE


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

"""What an audit should find, in plain Python: it asks `core.order` of every pair of jobs who holds back whom."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.domain.job_state import FINAL, JobStatus
from penstock.domain.order import Position, Standing, holds_back
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.history.audit.findings import FindingKind
from penstock.history.audit.window import FINISH_LAG_MS, LONGEST_DELIVERY_MS, AuditWindow

ORDERED = (DispatchMode.BLOCK_ON_ERROR, DispatchMode.NEXT_ON_ERROR)


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of jobs; a hostile one may lack anything."""

    id: str | None
    group_key: str | None
    mode: str | None = DispatchMode.BLOCK_ON_ERROR.value
    status: str | None = JobStatus.COMPLETED.value
    created_at_ms: int | None
    finished_at_ms: int | None = None
    sequence: int | None = 99
    scheduled_for_ms: int | None = None
    delivery_count: int = 0
    event_id: str | None = None
    subscription_id: str | None = None


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of attempts."""

    job_id: str | None
    number: int | None
    outcome: str | None = AttemptOutcome.DELIVERED.value
    at_ms: int | None
    duration_ms: int | None = 0

    @property
    def end_ms(self) -> int:
        """When it ended."""
        assert self.at_ms is not None
        return self.at_ms + min(max(self.duration_ms or 0, 0), LONGEST_DELIVERY_MS)


class Found(NamedTuple):
    """A finding, as far as it is compared."""

    kind: str
    job_id: str | None
    number: int | None
    other_job_id: str | None = None


def model_findings(jobs: Iterable[JobRow], attempts: Iterable[AttemptRow], window: AuditWindow) -> list[Found]:
    """All findings about jobs and attempts, sorted."""
    jobs = [job for job in jobs if job.finished_at_ms is None or _reaches(job.finished_at_ms, window)]
    attempts = [attempt for attempt in attempts if _is_seen(attempt, window)]
    found = [Found(FindingKind.DAMAGED, job.id, None) for job in jobs if _job_is_damaged(job, window)]
    found += [Found(FindingKind.DAMAGED, a.job_id, a.number) for a in attempts if _attempt_is_damaged(a, window)]
    ids = {job.id for job in jobs if job.id is not None}
    found += [
        Found(FindingKind.UNKNOWN_JOB, each.job_id, each.number)
        for each in attempts
        if each.job_id is not None and each.job_id not in ids
    ]
    timed = [each for each in attempts if each.at_ms is not None and 0 <= each.at_ms < window.until_ms]
    of_job: dict[str | None, list[AttemptRow]] = {job_id: [] for job_id in ids}
    for each in timed:
        of_job.setdefault(each.job_id, []).append(each)
    found += _undelivered(jobs, attempts, window)
    for job_id, tried in of_job.items():
        delivered = sorted((a.at_ms or 0, _sortable(a.number)) for a in tried if a.outcome == AttemptOutcome.DELIVERED)
        if job_id is not None:
            found += [Found(FindingKind.DUPLICATE, job_id, _number(key), job_id) for _, key in delivered[1:]]
    placed = [job for job in jobs if _has_place(job, window)]
    for group in {job.group_key for job in placed}:
        members = [job for job in placed if job.group_key == group]
        found += _overtaken(members, of_job, window)
        found += _overlaps(members, of_job, window)
    return sorted(found, key=str)


def _reaches(finished_ms: int, window: AuditWindow) -> bool:
    return window.since_ms <= 0 or finished_ms >= window.since_ms - FINISH_LAG_MS


def _is_seen(attempt: AttemptRow, window: AuditWindow) -> bool:
    if attempt.at_ms is None:
        return window.since_ms <= 0
    if attempt.at_ms > window.future_ms:
        return True
    return attempt.at_ms < window.until_ms and attempt.end_ms >= window.since_ms


def _job_is_damaged(job: JobRow, window: AuditWindow) -> bool:
    times = [time for time in (job.created_at_ms, job.finished_at_ms) if time is not None]
    return (
        None in (job.id, job.group_key, job.sequence, job.created_at_ms)
        or any(not 0 <= time <= window.future_ms for time in times)
        or job.mode not in [*DispatchMode]
        or job.status not in [*JobStatus]
        or (job.status in FINAL and job.finished_at_ms is None)
    )


def _attempt_is_damaged(attempt: AttemptRow, window: AuditWindow) -> bool:
    at_ms, duration_ms = attempt.at_ms, attempt.duration_ms
    if attempt.job_id is None or attempt.number is None or at_ms is None or duration_ms is None:
        return True
    is_possible = 0 <= at_ms <= window.future_ms and 0 <= duration_ms <= LONGEST_DELIVERY_MS
    return not is_possible or attempt.outcome not in [*AttemptOutcome]


def _has_place(job: JobRow, window: AuditWindow) -> bool:
    return (
        None not in (job.id, job.group_key, job.sequence)
        and job.created_at_ms is not None
        and 0 <= job.created_at_ms <= window.future_ms
        and job.mode in ORDERED
    )


def _undelivered(jobs: Sequence[JobRow], attempts: Sequence[AttemptRow], window: AuditWindow) -> list[Found]:
    since_ms = window.since_ms + FINISH_LAG_MS if window.since_ms > 0 else 0
    delivered = {attempt.job_id for attempt in attempts if attempt.outcome == AttemptOutcome.DELIVERED}
    return [
        Found(FindingKind.UNDELIVERED, job.id, None)
        for job in jobs
        if job.status == JobStatus.COMPLETED
        and job.id is not None
        and job.finished_at_ms is not None
        and since_ms <= job.finished_at_ms < window.until_ms
        and job.id not in delivered
    ]


def _overtaken(
    members: Sequence[JobRow], of_job: dict[str | None, list[AttemptRow]], window: AuditWindow
) -> list[Found]:
    found = []
    for job in members:
        for attempt in of_job[job.id]:
            assert attempt.at_ms is not None
            me = Standing(_position(job), DispatchMode(str(job.mode)), JobStatus.QUEUED)
            known = [(other, _known(other, of_job[other.id], attempt.at_ms, window)) for other in members]
            holding = [
                neighbour.position.id
                for other, neighbour in known
                if other is not job and neighbour is not None and holds_back(neighbour, me)
            ]
            if holding:
                first = min(_position(other) for other in members if other.id in holding)
                found.append(Found(FindingKind.OVERTAKEN, job.id, attempt.number, first.id))
    return found


def _known(job: JobRow, attempts: Sequence[AttemptRow], at_ms: int, window: AuditWindow) -> Standing | None:
    """What is certain of a job at a moment; None when nothing that matters is."""
    assert job.created_at_ms is not None
    late_ms = at_ms + window.tolerance_ms
    from_ms: int | None = job.created_at_ms
    if job.scheduled_for_ms is not None and job.scheduled_for_ms > job.created_at_ms:
        from_ms = min((each.at_ms or 0 for each in attempts), default=None)
    if from_ms is None or from_ms + window.tolerance_ms >= at_ms:
        return None
    mode = DispatchMode(str(job.mode))
    if job.status in FINAL and (job.finished_at_ms is None or job.finished_at_ms <= late_ms):
        still_blocks = job.status == JobStatus.ERROR and mode is DispatchMode.BLOCK_ON_ERROR
        return Standing(_position(job), mode, JobStatus.ERROR) if still_blocks else None
    first_ms = [each.at_ms or 0 for each in attempts if each.number == 1]
    was_tried = min(first_ms) <= late_ms if first_ms else job.delivery_count > 0
    # Unfinished: whether it waited, lay in the queue or had failed for the time being is all the same here.
    return Standing(_position(job), mode, JobStatus.PENDING, was_tried=was_tried)


def _overlaps(
    members: Sequence[JobRow], of_job: dict[str | None, list[AttemptRow]], window: AuditWindow
) -> list[Found]:
    begun = sorted(
        (attempt.at_ms or 0, attempt.end_ms, job.id or "", _sortable(attempt.number))
        for job in members
        for attempt in of_job[job.id]
    )
    found = []
    for place, (at_ms, _, job_id, number) in enumerate(begun):
        before = [(end_ms, other, its_number) for _, end_ms, other, its_number in begun[:place]]
        if before and max(before)[0] > at_ms + 1 + window.tolerance_ms:
            found.append(Found(FindingKind.OVERLAP, job_id, _number(number), max(before)[1]))
    return found


def _position(job: JobRow) -> Position:
    assert job.sequence is not None
    assert job.created_at_ms is not None
    assert job.id is not None
    return Position(job.sequence, job.created_at_ms, job.id)


def _sortable(number: int | None) -> int:
    return -1 if number is None else number


def _number(key: int) -> int | None:
    return None if key < 0 else key

"""Histories of one group: wild ones, in which anything may have happened, and lawful ones, which kept to the rules."""

from random import Random

import msgspec

from penstock.domain.job_state import JobStatus
from penstock.domain.order import Position, Standing, holds_back
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from tests.pipeline.audit_model import AttemptRow, JobRow

T0_MS = 1_790_000_000_000
MODES = [mode.value for mode in DispatchMode]
OPEN = (JobStatus.PENDING, JobStatus.QUEUED)
HOSTILE_TIMES = (None, -5, -(1 << 63), (1 << 63) - 1, T0_MS * 2)


class History(msgspec.Struct, frozen=True):
    """What a group left behind."""

    jobs: list[JobRow]
    attempts: list[AttemptRow]


def wild(random: Random, name: str) -> History:
    """A few jobs and attempts that fit together by chance only; now and then a row is damaged."""
    modes = random.choice([MODES, ["BLOCK_ON_ERROR"], ["NEXT_ON_ERROR"], ["BLOCK_ON_ERROR", "NEXT_ON_ERROR"]])
    sequences = random.choice([[99], [99], [1, 2, 99]])
    jobs, attempts = [], []
    for place in range(random.randint(1, 5)):
        job_id = f"{name}-{place}"
        created_ms = T0_MS + random.randint(0, 12)
        status = random.choice([*JobStatus, JobStatus.COMPLETED, JobStatus.COMPLETED]).value
        numbers = range(1 + (random.random() < 0.1), 1 + random.choice([0, 1, 1, 1, 2, 3]))
        tried = [
            AttemptRow(
                job_id=job_id,
                number=number,
                outcome=random.choice([*AttemptOutcome, AttemptOutcome.DELIVERED]).value,
                at_ms=created_ms + random.randint(0, 25),
                duration_ms=random.choice([0, 1, 2, 3, 8]),
            )
            for number in numbers
        ]
        over = status in ("COMPLETED", "ERROR", "CANCELLED", "EXPIRED")
        jobs.append(
            JobRow(
                id=job_id,
                group_key=f"{name}:ключ ✓",
                mode=random.choice(modes),
                status=status,
                created_at_ms=created_ms,
                finished_at_ms=created_ms + random.randint(0, 30) if over else None,
                sequence=random.choice(sequences),
                scheduled_for_ms=random.choice([None, None, None, created_ms, created_ms + 5]),
                delivery_count=random.choice([len(tried), len(tried), max(numbers, default=0), 0]),
                subscription_id=name,
            )
        )
        attempts += tried
    history = History(jobs, attempts)
    return _damaged(random, history, name) if random.random() < 0.2 else history


def _damaged(random: Random, history: History, name: str) -> History:
    jobs, attempts = list(history.jobs), list(history.attempts)
    if random.random() < 0.5:
        place = random.randrange(len(jobs))
        change: dict[str, object] = random.choice(
            [
                {"id": None},
                {"group_key": None},
                {"sequence": None},
                {"mode": "SOMETIMES"},
                {"mode": None},
                {"status": "🤷"},
                {"status": None},
                {"finished_at_ms": None},
                {"created_at_ms": random.choice(HOSTILE_TIMES)},
                {"finished_at_ms": random.choice(HOSTILE_TIMES)},
            ]
        )
        jobs[place] = msgspec.structs.replace(jobs[place], **change)
    elif attempts:
        place = random.randrange(len(attempts))
        change = random.choice(
            [
                {"job_id": None},
                {"job_id": f"{name}-nobody"},
                {"number": None},
                {"outcome": "LOST?"},
                {"outcome": None},
                {"at_ms": random.choice(HOSTILE_TIMES)},
                {"duration_ms": random.choice([None, -1, -(1 << 63), (1 << 63) - 1])},
            ]
        )
        attempts[place] = msgspec.structs.replace(attempts[place], **change)
    return History(jobs, attempts)


class _Job:
    """A job while its history is made."""

    def __init__(self, job_id: str, mode: str, sequence: int, created_ms: int, scheduled_for_ms: int | None) -> None:
        self.id = job_id
        self.mode = DispatchMode(mode)
        self.position = Position(sequence, created_ms, job_id)
        self.scheduled_for_ms = scheduled_for_ms
        self.status = JobStatus.PENDING
        self.is_due = scheduled_for_ms is None
        self.deliveries = 0
        self.began_ms = 0
        self.finished_ms: int | None = None
        self.is_archived = False

    @property
    def neighbour(self) -> Standing:
        """As the others see it."""
        return Standing(self.position, self.mode, self.status, was_tried=self.deliveries > 0, is_due=self.is_due)


class _Group:
    """A group that keeps to `core.order`; time stands still between some steps."""

    def __init__(self, random: Random, name: str) -> None:
        self._random = random
        self._name = name
        self._now_ms = T0_MS
        self._modes = random.choice([MODES, ["BLOCK_ON_ERROR"], ["NEXT_ON_ERROR"], ["BLOCK_ON_ERROR", "NEXT_ON_ERROR"]])
        self._sequences = random.choice([[99], [1, 99]])
        self.jobs: list[_Job] = []
        self.attempts: list[AttemptRow] = []

    def step(self) -> None:
        """Something happens."""
        self._now_ms += self._random.choice([0, 0, 1, 2, 5])
        if len(self.jobs) < 8 and self._random.random() < 0.3:
            self._make()
        elif self.jobs:
            job = self._random.choice(self.jobs)
            if not job.is_archived:
                self._move(job)

    def _make(self) -> None:
        later_ms = self._random.choice([None, None, None, self._now_ms + 3])
        job_id = f"{self._name}-{len(self.jobs):02}"
        sequence = self._random.choice(self._sequences)
        self.jobs.append(_Job(job_id, self._random.choice(self._modes), sequence, self._now_ms, later_ms))

    def _move(self, job: _Job) -> None:
        match job.status:
            case JobStatus.PENDING if not job.is_due:
                job.is_due = job.deliveries > 0 or (job.scheduled_for_ms or 0) <= self._now_ms
            case JobStatus.PENDING | JobStatus.QUEUED if self._random.random() < 0.05:
                self._end(job, self._random.choice([JobStatus.CANCELLED, JobStatus.EXPIRED]))
            case JobStatus.PENDING | JobStatus.QUEUED:
                others = [each.neighbour for each in self.jobs if each is not job and not each.is_archived]
                if not any(holds_back(other, job.neighbour) for other in others):
                    job.status, job.began_ms = JobStatus.PROCESSING, self._now_ms
                    job.deliveries += 1
            case JobStatus.PROCESSING:
                self._finish(job)
            case JobStatus.ERROR:
                self._decide(job)

    def _finish(self, job: _Job) -> None:
        if self._random.random() < 0.1:
            # Whoever delivered it has crashed: it is tried again, and no one wrote down that it was.
            job.status = JobStatus.PENDING
            return
        outcome = self._random.choice([*AttemptOutcome, AttemptOutcome.DELIVERED, AttemptOutcome.DELIVERED])
        took_ms = self._now_ms - job.began_ms
        # A duration is rounded, and may be the larger by it.
        told_ms = took_ms + self._random.choice([0, 1]) if took_ms == 0 else took_ms
        self.attempts.append(
            AttemptRow(
                job_id=job.id, number=job.deliveries, outcome=outcome.value, at_ms=job.began_ms, duration_ms=told_ms
            )
        )
        match outcome:
            case AttemptOutcome.DELIVERED:
                self._end(job, JobStatus.COMPLETED)
            case AttemptOutcome.REFUSED:
                self._end(job, JobStatus.ERROR)
            case _:
                job.status = self._random.choice([JobStatus.PENDING, JobStatus.QUEUED])
                job.is_due = job.status is JobStatus.QUEUED

    def _decide(self, job: _Job) -> None:
        match self._random.choice(["retry", "ignore", "archive", "wait", "wait"]):
            case "retry":
                job.status, job.finished_ms, job.is_due = JobStatus.PENDING, None, True
            case "ignore":
                self._end(job, JobStatus.CANCELLED)
            case "archive" if job.mode is not DispatchMode.BLOCK_ON_ERROR:
                job.is_archived = True

    def _end(self, job: _Job, status: JobStatus) -> None:
        job.status, job.finished_ms = status, self._now_ms


def lawful(random: Random, name: str, steps: int = 80) -> History:
    """What a group leaves that keeps to the rules, with failures, crashes, and people who decide."""
    group = _Group(random, name)
    for _ in range(steps):
        group.step()
    jobs = [
        JobRow(
            id=job.id,
            group_key=f"{name}:ключ",
            mode=job.mode.value,
            status=job.status.value,
            created_at_ms=job.position.created_at_ms,
            finished_at_ms=job.finished_ms,
            sequence=job.position.sequence,
            scheduled_for_ms=job.scheduled_for_ms,
            delivery_count=job.deliveries,
            subscription_id=name,
        )
        for job in group.jobs
    ]
    return History(jobs, group.attempts)

"""The statuses of a dispatch job, the moves between them (JOB-STATUS-1), and the defaults of a job."""

from enum import StrEnum


class JobStatus(StrEnum):
    """The state of a job; TRANSITIONS lists the moves."""

    PENDING = "PENDING"
    QUEUED = "QUEUED"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


PENDING = JobStatus.PENDING
QUEUED = JobStatus.QUEUED
PROCESSING = JobStatus.PROCESSING
COMPLETED = JobStatus.COMPLETED
ERROR = JobStatus.ERROR
CANCELLED = JobStatus.CANCELLED
EXPIRED = JobStatus.EXPIRED

TRANSITIONS: frozenset[tuple[JobStatus, JobStatus]] = frozenset(
    {
        (PENDING, QUEUED),  # published
        (PENDING, CANCELLED),  # cancelled by a person
        (PENDING, EXPIRED),  # too late to deliver
        (QUEUED, PROCESSING),  # its delivery begins
        (QUEUED, PENDING),  # its lease expired, or an earlier job of its group is not done
        (QUEUED, CANCELLED),  # cancelled by a person
        (QUEUED, EXPIRED),  # too late to deliver
        (PROCESSING, COMPLETED),  # delivered
        (PROCESSING, ERROR),  # refused permanently, or out of attempts
        (PROCESSING, PENDING),  # retried later, or its lease expired
        (PROCESSING, QUEUED),  # retried when the queue delivers it again
        (PROCESSING, EXPIRED),  # too late for the next attempt
        (ERROR, PENDING),  # retried by a person
        (ERROR, CANCELLED),  # ignored by a person, or replaced by its copy in a replay
    }
)

FINAL = frozenset({COMPLETED, ERROR, CANCELLED, EXPIRED})
"""Late writes never move a job out of these; only a person moves one out of ERROR."""

DIRECT_TYPE = "DISPATCH_JOB"
"""The type of a job without an event."""

DEFAULT_DISPATCH_POOL = "DISPATCH-POOL"
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_CONCURRENCY = 10

"""The life of a dispatch job: its statuses, and the only moves between them (JOB-STATUS-1).

What a job, a subscription or a pool has unless it says otherwise.
"""

from enum import StrEnum


class JobStatus(StrEnum):
    """Where a job is; TRANSITIONS lists the moves."""

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
        (PENDING, EXPIRED),  # its time is over
        (QUEUED, PROCESSING),  # its delivery begins
        (QUEUED, PENDING),  # its lease ran out, or an earlier job of its group is not done
        (QUEUED, CANCELLED),  # cancelled by a person
        (QUEUED, EXPIRED),  # its time is over
        (PROCESSING, COMPLETED),  # delivered
        (PROCESSING, ERROR),  # refused for good, or out of attempts
        (PROCESSING, PENDING),  # to be tried again later, or its lease ran out
        (PROCESSING, QUEUED),  # to be tried again when the queue brings it again
        (PROCESSING, EXPIRED),  # its time is over before the next attempt
        (ERROR, PENDING),  # retried by a person
        (ERROR, CANCELLED),  # ignored by a person, or replaced by its copy in a replay
    }
)

FINAL = frozenset({COMPLETED, ERROR, CANCELLED, EXPIRED})
"""Where a job stays, whatever is written late; only a person moves one out of ERROR."""


DIRECT_TYPE = "DISPATCH_JOB"
"""The type of a job that no event caused."""

DEFAULT_DISPATCH_POOL = "DISPATCH-POOL"
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_CONCURRENCY = 10

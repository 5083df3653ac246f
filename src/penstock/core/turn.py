"""Whether a job that reached its delivery may be delivered: order is kept there too (ruling 19)."""

from collections.abc import Iterable

import msgspec

from penstock.core.job_state import JobStatus
from penstock.core.plan import Position
from penstock.core.pointer import DispatchMode


class Neighbour(msgspec.Struct, frozen=True):
    """A job of a group as its neighbours see it."""

    position: Position
    mode: DispatchMode
    status: JobStatus
    was_tried: bool = False
    is_due: bool = True


def holds_back(other: Neighbour, job: Neighbour) -> bool:
    """Whether `job`, about to be delivered, must wait for `other` of its group.

    An earlier BLOCK_ON_ERROR or NEXT_ON_ERROR job that was not tried yet holds back the ones behind it. One that was
    tried holds back BLOCK_ON_ERROR jobs only, and so does one in ERROR. A job made for later takes its place when due.
    """
    if DispatchMode.IMMEDIATE in (job.mode, other.mode) and other.status is not JobStatus.ERROR:
        return False
    if job.mode is DispatchMode.IMMEDIATE:
        return False
    if other.status is JobStatus.PROCESSING:
        return True
    if other.position > job.position:
        return False
    strict = job.mode is DispatchMode.BLOCK_ON_ERROR
    match other.status:
        case JobStatus.ERROR:
            return strict
        case JobStatus.PENDING if not other.is_due:
            return strict and other.was_tried
        case JobStatus.PENDING | JobStatus.QUEUED:
            return strict or (other.mode is DispatchMode.NEXT_ON_ERROR and not other.was_tried)
        case _:
            return False


def may_be_delivered(job: Neighbour, others: Iterable[Neighbour]) -> bool:
    """Whether none of the others of its group holds a job back."""
    return not any(holds_back(other, job) for other in others)

"""What people decide about jobs: to cancel, retry or ignore them."""

from collections.abc import Sequence

from penstock.jobs.errors import JobNotFound, WrongJobStatus
from penstock.jobs.stored_state import STATUS_OF, StoredState
from penstock.jobs.transaction import Row, Transaction
from penstock.jobs.waking import move_and_wake

_CANCELLABLE = (StoredState.WAITING, StoredState.READY, StoredState.CLAIMED, StoredState.QUEUED)


def cancel(tx: Transaction, job_ids: Sequence[str], now_ms: int) -> None:
    """Give up jobs that are not being delivered; all of them or, with an error, none."""
    _all_or_none(tx, job_ids, _cancel(tx, tx.all("groups_of_jobs", ids=list(job_ids)), now_ms), "cancelled")


def retry(tx: Transaction, job_ids: Sequence[str], now_ms: int) -> None:
    """Begin anew with jobs in ERROR; all of them or, with an error, none."""
    jobs = tx.all("groups_of_jobs", ids=list(job_ids))
    _all_or_none(tx, job_ids, [job.id for job in move_and_wake(tx, "retry_jobs", jobs, now_ms=now_ms)], "retried")


def ignore(tx: Transaction, job_ids: Sequence[str], now_ms: int) -> None:
    """Give up jobs in ERROR, so that their groups move on; all of them or, with an error, none."""
    jobs = tx.all("groups_of_jobs", ids=list(job_ids))
    _all_or_none(tx, job_ids, [job.id for job in move_and_wake(tx, "ignore_jobs", jobs, now_ms=now_ms)], "ignored")


def retry_group(tx: Transaction, group_key: str, now_ms: int, most: int) -> list[str]:
    """Begin anew with the jobs of a group that are in ERROR, in order and at most so many; their ids."""
    errors = tx.all("errors_of_group", group_key=group_key, most=most)
    moved = {job.id for job in move_and_wake(tx, "retry_jobs", errors, now_ms=now_ms)}
    return [job_id for job_id, _ in errors if job_id in moved]


def cancel_of_subscription(tx: Transaction, subscription_id: str, now_ms: int, most: int) -> int:
    """Give up jobs of a subscription that are not being delivered, at most so many; how many."""
    return len(_cancel(tx, tx.all("unfinished_of_subscription", subscription_id=subscription_id, most=most), now_ms))


def _cancel(tx: Transaction, jobs: Sequence[Row], now_ms: int) -> list[str]:
    # A job may pass from one state to the next meanwhile, but only until its lane is locked by the first of these.
    return [
        job.id
        for state in _CANCELLABLE
        for job in move_and_wake(tx, "cancel_jobs", jobs, state=int(state), now_ms=now_ms)
    ]


def _all_or_none(tx: Transaction, job_ids: Sequence[str], moved: Sequence[str], wanted: str) -> None:
    """Raise, which takes everything back, unless all that were asked for have moved."""
    left = set(job_ids).difference(moved)
    if left:
        states: dict[str, int] = dict(tx.all("states_of_jobs", ids=sorted(left)))
        for job_id in sorted(left):
            if job_id not in states:
                raise JobNotFound(job_id)
            raise WrongJobStatus(job_id, STATUS_OF[states[job_id]], wanted)

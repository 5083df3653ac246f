"""What has to happen because time has passed: jobs come due, claims and leases run out, jobs expire."""

from collections.abc import Callable

from penstock.jobs.lane_claiming import unclaim_lapsed
from penstock.jobs.leading import check_leader
from penstock.jobs.transaction import Transaction
from penstock.jobs.waking import Moved, move_and_wake

Chore = Callable[[Transaction], int]

AT_ONCE = 5000


def chores_due(tx: Transaction, now_ms: int) -> list[Chore]:
    """What has to be done now, each in a transaction of its own."""
    (due, lapsed, expiring, lapsed_lanes) = tx.all("chores", now_ms=now_ms)[0]
    return [
        chore
        for needed, chore in (
            (expiring, lambda tx: _moved(tx, "expiring_jobs", "expire_jobs", now_ms)),
            (due, lambda tx: _moved(tx, "due_jobs", "promote_jobs", now_ms)),
            (lapsed, lambda tx: _moved(tx, "lapsed_claims", "unclaim_jobs", now_ms)),
            (lapsed_lanes, lambda tx: unclaim_lapsed(tx, now_ms, AT_ONCE)),
        )
        if needed
    ]


def recover_stale(tx: Transaction, now_ms: int, most: int, token: int | None) -> list[str]:
    """Jobs whose lease has run out while QUEUED or PROCESSING go back to PENDING (ruling 20), at most so many."""
    check_leader(tx, token)
    stale = tx.all("stale_jobs", now_ms=now_ms, most=most)
    return [job.id for job in move_and_wake(tx, "recover_jobs", stale, now_ms=now_ms)]


def expire_due(tx: Transaction, now_ms: int, most: int) -> int:
    """Jobs that nobody began to deliver in time are given up, at most so many."""
    return len(_move_some(tx, "expiring_jobs", "expire_jobs", now_ms, most))


def next_due_ms(tx: Transaction) -> int | None:
    """The next moment at which a claim finds something that it does not find now, if nothing else happens."""
    due_ms: int | None = tx.all("next_due")[0][0]
    return due_ms


def _moved(tx: Transaction, which: str, statement: str, now_ms: int) -> int:
    return len(_move_some(tx, which, statement, now_ms, AT_ONCE))


def _move_some(tx: Transaction, which: str, statement: str, now_ms: int, most: int) -> list[Moved]:
    return move_and_wake(tx, statement, tx.all(which, now_ms=now_ms, most=most), now_ms=now_ms)

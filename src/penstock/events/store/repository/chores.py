"""What must happen because time has passed: jobs come due, claims and leases expire, jobs expire."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from penstock.events.store.database import RepositoryPart, Transaction, reads, writes, writes_one
from penstock.events.store.repository.lanes import move_and_wake, wake_waiting
from penstock.events.store.repository.leader import check_leader

AT_ONCE = 5000
"""How many jobs or lanes one transaction of a chore changes."""

NOTHING: Mapping[str, int] = MappingProxyType({})

Chore = Callable[[Transaction], int]


class JobChores(RepositoryPart):
    """The scheduler's chores."""

    async def do_chores(self, now_ms: int) -> None:
        """Promote due jobs, give up expired ones, free lapsed lanes; to be done before lanes are read."""
        for chore in await self._chores_due(now_ms):
            while await self._database.write(chore) == AT_ONCE:
                continue

    @reads
    def _chores_due(self, tx: Transaction, now_ms: int) -> list[Chore]:
        """Return what has to be done now, each to be done in transactions of its own."""
        (due, expiring, lapsed_lanes) = tx.all("chores", now_ms=now_ms)[0]
        return [
            chore
            for needed, chore in (
                (expiring, lambda tx: _move_some(tx, "expiring_jobs", "expire_jobs", now_ms)),
                (due, lambda tx: _move_some(tx, "due_jobs", "promote_jobs", now_ms)),
                (lapsed_lanes, lambda tx: _free_lapsed_lanes(tx, now_ms)),
            )
            if needed
        ]

    @reads
    def next_due_ms(self, tx: Transaction) -> int | None:
        """Return the next moment at which there are chores to do, if nothing else happens."""
        due_ms: int | None = tx.all("next_due")[0][0]
        return due_ms

    @reads
    def stale_pools(self, tx: Transaction, now_ms: int, after: str, most: int) -> list[str]:
        """Return the pools that have jobs whose time in the queue has expired: up to `most`, after one of them."""
        return [pool for (pool,) in tx.all("stale_pools", now_ms=now_ms, after=after, most=most)]

    @writes
    def recover_stale(
        self, tx: Transaction, now_ms: int, most: int, token: int | None = None, settled: Mapping[str, int] = NOTHING
    ) -> list[str]:
        """Move up to `most` lost jobs back to PENDING, and return their ids (SCHED-STALE-1).

        Lost are PROCESSING jobs whose lease has expired, and QUEUED ones that were published before `settled` says: the
        moment, by pool, before which nothing was published that a queue still has (SCHED-STALE-3). Lanes that wait for
        a job which is not on its way any more wake, too.
        """
        check_leader(tx, token)
        wake_waiting(tx, [job_id for (job_id,) in tx.all("lanes_that_wait_in_vain", most=AT_ONCE)])
        lost = tx.all("abandoned_jobs", now_ms=now_ms, most=most)
        for pool, before_ms in settled.items():
            lost += tx.all("lost_jobs", pool=pool, settled_before_ms=before_ms, now_ms=now_ms, most=most - len(lost))
        return [job.id for job in move_and_wake(tx, "recover_jobs", lost, now_ms=now_ms)]

    @writes_one
    def extend_leases(self, tx: Transaction, job_ids: Sequence[str], lease_until_ms: int) -> list[str]:
        """Extend the leases of QUEUED and PROCESSING jobs known to be on their way; return the ids that changed."""
        return [job_id for (job_id,) in tx.all("extend_leases", ids=list(job_ids), lease_until_ms=lease_until_ms)]


def _move_some(tx: Transaction, which: str, statement: str, now_ms: int) -> int:
    return len(move_and_wake(tx, statement, tx.all(which, now_ms=now_ms, most=AT_ONCE), now_ms=now_ms))


def _free_lapsed_lanes(tx: Transaction, now_ms: int) -> int:
    """Let others claim lanes whose claim has expired."""
    lapsed = tx.all("lapsed_lanes", now_ms=now_ms, most=AT_ONCE)
    if lapsed:
        tx.lock_lanes({group_key for group_key, _ in lapsed})
        tx.bulk("unclaim_lanes", [(*lane, now_ms) for lane in lapsed])
        tx.announce()
    return len(lapsed)

"""The lanes of a database, claimed as a whole by whoever publishes from them; each call is one transaction.

Jobs that move, and what it means for their lanes.

Claiming jobs to publish, and telling what became of them (SCHED-CLAIM-1); the rules are those of core.plan.

A lane that is awake may have something to give. One that turns out to have nothing goes to sleep, or is dropped when
it is empty, and whoever changes that wakes it: so a poll costs what it claims, however much is blocked or done.

Claiming whole lanes to publish from, as Spark does: one write per lane instead of one per job (decision 0012).

While a lane is claimed nobody else publishes from it, and its jobs stay READY; a job is written once, when it is in the
queue. A job that is told to be there moves only if it is still READY in the same round: so whoever comes late, or
twice, changes nothing.

What has to happen because time has passed: jobs come due, claims and leases run out, jobs expire.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Protocol, TypeVar

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey, share_of
from penstock.domain.pointer import DispatchMode
from penstock.events.store.leader import check_leader
from penstock.events.store.statements import MODE_OF, StoredMode, StoredState
from penstock.events.store.transaction import Row, Transaction


class Moved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that was moved, and what it was before."""

    id: str
    group_key: str
    mode: int
    subscription_id: str | None
    before: int

    @property
    def lanes(self) -> set[LaneKey]:
        """The lane it is of, and the one it kept back."""
        own = LaneKey(self.group_key, self.mode != StoredMode.IMMEDIATE)
        return {own, LaneKey(self.group_key, True)} if self.before == StoredState.ERROR else {own}


def move(tx: Transaction, statement: str, jobs: Sequence[Row], **values: object) -> list[Moved]:
    """Move jobs, given as (id, group key), by a guarded statement; those that had moved on already are left out."""
    if not jobs:
        return []
    tx.lock_lanes({group_key for _, group_key in jobs})
    moved = [Moved(*row) for row in tx.all(statement, ids=[job_id for job_id, _ in jobs], **values)]
    _land_published(tx, moved)
    return moved


def move_and_wake(tx: Transaction, statement: str, jobs: Sequence[Row], **values: object) -> list[Moved]:
    """As `move`, and wake lanes: of jobs that may be claimed now, and those that jobs which are gone kept back."""
    moved = move(tx, statement, jobs, **values)
    wake_lanes(tx, {lane: job.subscription_id for job in moved for lane in job.lanes})
    return moved


def _land_published(tx: Transaction, moved: Iterable[Moved]) -> None:
    """Ordered jobs that were being published are so no longer; after the last of them their lane is awake again."""
    landed = Counter(job.group_key for job in moved if job.before == StoredState.CLAIMED and job.mode)
    if landed:
        tx.bulk("land_lanes", sorted(landed.items()))
        tx.announce()


def wake_lanes(tx: Transaction, lanes: dict[LaneKey, str | None]) -> None:
    """These lanes, each with its subscription, may have something to give."""
    if not lanes:
        return
    turns = tx.take_turns(len(lanes))
    rows = [(*lane, subscription_id, turn) for (lane, subscription_id), turn in zip(lanes.items(), turns, strict=True)]
    tx.bulk("wake_lanes", rows)
    tx.announce()


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims how much, for how long."""

    now_ms: int
    owner: str
    lease_ms: int
    most: int
    per_group: int
    token: int | None


def claim_jobs(tx: Transaction, claim: Claim) -> list[ClaimedJob]:
    """Take what may be published now: each group's jobs in order, the first of every lane before the second of any."""
    check_leader(tx, claim.token)
    tx.gate(exclusive=False)
    lanes, heads = _lanes_with_work(tx, claim)
    share = share_of(claim.most, len(lanes), claim.per_group)
    runs = heads if share <= 1 else tx.runs(lanes, claim.now_ms, share)
    _serve(tx, lanes, runs)
    ids = [job_id for rank in zip_longest(*runs) for job_id in rank if job_id is not None]
    return _claimed(tx, ids, claim)


def mark_queued(
    tx: Transaction, jobs: Sequence[ClaimedJob], owner: str, now_ms: int, lease_until_ms: int, token: int | None
) -> list[str]:
    """These are in the queue; the ids of those that were still claimed by this owner."""
    check_leader(tx, token)
    places = [(job.id, job.group_key) for job in jobs]
    moved = move(tx, "queue_jobs", places, owner=owner, now_ms=now_ms, lease_until_ms=lease_until_ms)
    return [job.id for job in moved]


def release(tx: Transaction, jobs: Sequence[ClaimedJob], owner: str, now_ms: int, token: int | None) -> list[str]:
    """These are not in the queue and may be claimed again; the ids of those that were still claimed by this owner."""
    check_leader(tx, token)
    moved = move_and_wake(tx, "release_jobs", [(job.id, job.group_key) for job in jobs], owner=owner, now_ms=now_ms)
    return [job.id for job in moved]


def _lanes_with_work(tx: Transaction, claim: Claim) -> tuple[list[LaneKey], list[list[str]]]:
    """The lanes whose turn it is and that have something to give, each with its first job; others go to sleep."""
    lanes: list[LaneKey] = []
    heads: list[list[str]] = []
    after = -1
    while len(lanes) < claim.most:
        wanted = claim.most - len(lanes)
        rows = tx.all("awake_lanes", after=after, most=wanted)
        if not rows:
            break
        after = rows[-1][3]
        paused = paused_among(tx, {subscription_id for _, _, subscription_id, _ in rows if subscription_id})
        awake = [LaneKey(group_key, bool(ordered)) for group_key, ordered, sub, _ in rows if sub not in paused]
        idle = [LaneKey(group_key, bool(ordered)) for group_key, ordered, sub, _ in rows if sub in paused]
        for lane, run in zip(awake, tx.runs(awake, claim.now_ms, 1), strict=True):
            if run:
                lanes.append(lane)
                heads.append(run)
            else:
                idle.append(lane)
        put_to_sleep(tx, idle)
        if len(rows) < wanted:
            break
    return lanes, heads


def paused_among(tx: Transaction, subscription_ids: set[str]) -> set[str]:
    """Which of these subscriptions take nothing at the moment."""
    if not subscription_ids:
        return set()
    return {paused for (paused,) in tx.all("paused_subscriptions", ids=sorted(subscription_ids))}


def put_to_sleep(tx: Transaction, lanes: Sequence[LaneKey]) -> None:
    """Lanes with nothing to give sleep until somebody wakes them; those without a READY job are gone."""
    if lanes:
        tx.bulk("drop_empty_lanes", lanes)
        tx.bulk("park_lanes", lanes)


def _serve(tx: Transaction, lanes: list[LaneKey], runs: list[list[str]]) -> None:
    """Ordered lanes sleep until all that was taken is published. All lanes served go to the end of the line."""
    if not lanes:
        return
    served = zip(lanes, runs, tx.take_turns(len(lanes)), strict=True)
    rows = [(*lane, len(run) if lane.ordered else 0, not lane.ordered, turn) for lane, run, turn in served]
    tx.bulk("serve_lanes", rows)


def _claimed(tx: Transaction, ids: list[str], claim: Claim) -> list[ClaimedJob]:
    if not ids:
        return []
    until_ms = claim.now_ms + claim.lease_ms
    rows = tx.all("claim_jobs", ids=ids, owner=claim.owner, lease_until_ms=until_ms, now_ms=claim.now_ms)
    claimed = {
        job_id: ClaimedJob(job_id, group_key, MODE_OF[mode], pool, publish_round, subscription_id, due_at_ms)
        for job_id, group_key, mode, pool, publish_round, subscription_id, due_at_ms in rows
    }
    return [claimed[job_id] for job_id in ids]


class LaneOwner(msgspec.Struct, frozen=True):
    """In whose name lanes are claimed, and the token of the leader on whose behalf."""

    name: str
    token: int | None = None


class AwakeRange(msgspec.Struct, frozen=True):
    """Lanes that may have something to give, whose turns lie between two numbers, both included."""

    first_turn: int
    last_turn: int
    lanes: int


def lane_key(job: ClaimedJob) -> LaneKey:
    """The lane a job waits in."""
    return LaneKey(job.group_key, job.mode is not DispatchMode.IMMEDIATE)


def any_awake(tx: Transaction) -> bool:
    """Whether a claim might find something."""
    return bool(tx.all("any_lane_awake")[0][0])


def awake_ranges(tx: Transaction, owner: str, most: int, parts: int) -> list[AwakeRange]:
    """The lanes whose turn it is, at most so many, in up to `parts` ranges; also those the owner has claimed before."""
    return [AwakeRange(*row) for row in tx.all("awake_ranges", owner=owner, most=most, parts=parts)]


def claim_lanes(
    tx: Transaction, lanes: Mapping[LaneKey, int], owner: LaneOwner, now_ms: int, lease_ms: int
) -> list[LaneKey]:
    """Take lanes that are nobody's, or this owner's already; those that are its own now.

    Each comes with the turn it had when its jobs were read: if it has another one it was served since then.
    """
    check_leader(tx, owner.token)
    tx.gate(exclusive=False)
    tx.lock_lanes({lane.group_key for lane in lanes})
    rows = tx.take_lanes(lanes, owner.name, now_ms + lease_ms)
    claimed = {LaneKey(group_key, bool(ordered)): subscription_id for group_key, ordered, subscription_id in rows}
    paused = paused_among(tx, {subscription for subscription in claimed.values() if subscription})
    idle = [lane for lane, subscription in claimed.items() if subscription in paused]
    _land(tx, idle, owner)
    put_to_sleep(tx, idle)
    return [lane for lane, subscription in claimed.items() if subscription not in paused]


def let_sleep(tx: Transaction, lanes: Sequence[LaneKey], owner: LaneOwner, now_ms: int) -> None:
    """These were found with nothing to give; unless that has changed they sleep until somebody wakes them."""
    check_leader(tx, owner.token)
    tx.gate(exclusive=False)
    tx.lock_lanes({lane.group_key for lane in lanes})
    keys = sorted({lane.group_key for lane in lanes})
    awake = {LaneKey(key, bool(ordered)): sub for key, ordered, sub in tx.all("awake_among", group_keys=keys)}
    asked = [lane for lane in lanes if lane in awake]
    paused = paused_among(tx, {subscription for subscription in awake.values() if subscription})
    runs = tx.runs(asked, now_ms, 1)
    put_to_sleep(tx, [lane for lane, run in zip(asked, runs, strict=True) if not run or awake[lane] in paused])


def mark_published(
    tx: Transaction,
    jobs: Sequence[ClaimedJob],
    done: Sequence[LaneKey],
    owner: LaneOwner,
    now_ms: int,
    lease_until_ms: int,
) -> None:
    """These jobs are in the queue, and of these lanes no more is published now: they go to the end of the line."""
    check_leader(tx, owner.token)
    tx.lock_lanes({job.group_key for job in jobs} | {lane.group_key for lane in done})
    tx.bulk("queue_published", [(job.id, job.publish_round, lease_until_ms, now_ms) for job in jobs])
    _land(tx, done, owner)


def hold_lanes(tx: Transaction, lanes: Sequence[tuple[LaneKey, int]], owner: LaneOwner) -> None:
    """Nobody publishes from these claimed lanes before a moment, given with each."""
    check_leader(tx, owner.token)
    tx.lock_lanes({lane.group_key for lane, _ in lanes})
    tx.bulk("hold_lanes", [(*lane, owner.name, until_ms) for lane, until_ms in lanes])


def unclaim_lapsed(tx: Transaction, now_ms: int, most: int) -> int:
    """Lanes whose claim is over may be claimed by others, at most so many; how many there were."""
    lapsed = tx.all("lapsed_lanes", now_ms=now_ms, most=most)
    if lapsed:
        tx.lock_lanes({group_key for group_key, _ in lapsed})
        tx.bulk("unclaim_lanes", [(*lane, now_ms) for lane in lapsed])
        tx.announce()
    return len(lapsed)


def count_ready(tx: Transaction, most: int) -> int:
    """How many jobs wait to be published, counted up to `most`."""
    count: int = tx.all("count_ready", most=most)[0][0]
    return count


def _land(tx: Transaction, lanes: Sequence[LaneKey], owner: LaneOwner) -> None:
    """Lanes are nobody's again; those without a READY job are gone. They must be locked before, by their own statement:
    then whoever makes a job for one of them either has been seen, or waits and makes the lane anew.
    """
    if lanes:
        tx.bulk("drop_landed_lanes", [(*lane, owner.name) for lane in lanes])
        turns = tx.take_turns(len(lanes))
        rows = [(*lane, owner.name, turn) for lane, turn in zip(lanes, turns, strict=True)]
        tx.bulk("land_claimed_lanes", rows)


Result = TypeVar("Result")


class Database(Protocol):
    """What lanes need of a database."""

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work as a whole or not at all."""
        ...

    async def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that changes nothing."""
        ...


class Lanes:
    """Lanes that have jobs to publish; StaleLeader when the owner's token is not the newest any more."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def any_awake(self) -> bool:
        """Whether a claim might find something."""
        return await self._database.read(any_awake)

    async def awake_ranges(self, owner: str, most: int, parts: int) -> list[AwakeRange]:
        """The lanes whose turn it is, at most so many, in up to `parts` ranges; and those the owner has claimed."""
        return await self._database.read(lambda tx: awake_ranges(tx, owner, most, parts))

    async def claim(self, lanes: Mapping[LaneKey, int], owner: LaneOwner, now_ms: int, lease_ms: int) -> list[LaneKey]:
        """Take lanes that are nobody's or this owner's already, and were not served since they had the turn given with
        each; those that are its own now."""
        return await self._database.write(lambda tx: claim_lanes(tx, lanes, owner, now_ms, lease_ms))

    async def let_sleep(self, lanes: Sequence[LaneKey], owner: LaneOwner, now_ms: int) -> None:
        """These were found with nothing to give; unless that has changed they sleep until somebody wakes them."""
        await self._database.write(lambda tx: let_sleep(tx, lanes, owner, now_ms))

    async def mark_published(
        self, jobs: Sequence[ClaimedJob], done: Sequence[LaneKey], owner: LaneOwner, now_ms: int, lease_until_ms: int
    ) -> None:
        """These jobs are in the queue, and the lanes that are done are nobody's again."""
        await self._database.write(lambda tx: mark_published(tx, jobs, done, owner, now_ms, lease_until_ms))

    async def hold(self, lanes: Sequence[tuple[LaneKey, int]], owner: LaneOwner) -> None:
        """Nobody publishes from these claimed lanes before a moment, given with each."""
        await self._database.write(lambda tx: hold_lanes(tx, lanes, owner))

    async def count_ready(self, most: int) -> int:
        """How many jobs wait to be published, counted up to `most`."""
        return await self._database.read(lambda tx: count_ready(tx, most))


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
    """Jobs whose lease has run out while QUEUED or PROCESSING go back to PENDING (SCHED-STALE-1), at most so many."""
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

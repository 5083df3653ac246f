"""The lanes of a database, claimed as a whole by whoever publishes from them; each call is one transaction.

Claiming lanes to publish from: one write per lane instead of one per job (docs/decisions/0012).

A lane that is awake may have something to give. One that turns out to have nothing goes to sleep, or is dropped when it
is empty, and whoever changes that wakes it: so a poll costs what it claims, however much is blocked or done.

While a lane is claimed, no one else publishes from it, and its jobs stay READY; a job is written once, when it is in
the queue. It moves only if it is still READY in the round that was published: so whoever comes late, or twice, changes
nothing.

Jobs that move, and what it means for their lanes.

What has to happen because time has passed: jobs come due, claims and leases run out, jobs expire.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey, share_of
from penstock.events.store.lane_run import LaneRun, run_of
from penstock.events.store.leader import check_leader
from penstock.events.store.statements import StoredMode, StoredState
from penstock.events.store.transaction import Row, Transaction

_FEW = 4
_MANY = 250


class LaneOwner(msgspec.Struct, frozen=True):
    """In whose name lanes are claimed, and the token of the leader on whose behalf."""

    name: str
    token: int | None = None


class AwakeRange(msgspec.Struct, frozen=True):
    """Lanes that may have something to give, whose turns lie between two numbers, both included."""

    first_turn: int
    last_turn: int
    lanes: int


def any_awake(tx: Transaction) -> bool:
    """Whether a claim might find something."""
    return bool(tx.all("any_lane_awake")[0][0])


def awake_ranges(tx: Transaction, owner: str, most: int, parts: int) -> list[AwakeRange]:
    """The lanes whose turn it is, at most so many, in up to `parts` ranges; also those the owner has claimed before."""
    return [AwakeRange(*row) for row in tx.all("awake_ranges", owner=owner, most=most, parts=parts)]


def read_lanes(tx: Transaction, now_ms: int, most: int, per_lane: int) -> list[LaneRun]:
    """The lanes whose turn it is, and what each may give: an equal share of `most` jobs, up to `per_lane`.

    In a large backlog a lane gives a few jobs at least, and others wait a little longer for their turn: to claim a lane
    and give it back costs as much as to publish two jobs.
    """
    rows = tx.all("awake_lanes", most=most)
    share = max(share_of(most, len(rows), per_lane), min(_FEW, per_lane, most // _MANY))
    at_once = max(1, most // max(1, share))
    runs: list[LaneRun] = []
    for start in range(0, len(rows), at_once):
        runs += _read(tx, rows[start : start + at_once], now_ms, share)
        # More than half of what was asked for is enough: the next part may give as much again.
        if 2 * sum(len(run.jobs) for run in runs) > most:
            break
    return runs


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
    paused = _paused_among(tx, claimed.values())
    idle = [lane for lane, subscription in claimed.items() if subscription in paused]
    _land(tx, idle, owner)
    _put_to_sleep(tx, idle)
    return [lane for lane, subscription in claimed.items() if subscription not in paused]


def let_sleep(tx: Transaction, lanes: Sequence[LaneKey], owner: LaneOwner, now_ms: int) -> None:
    """These were found with nothing to give; unless that has changed they sleep until somebody wakes them."""
    check_leader(tx, owner.token)
    tx.gate(exclusive=False)
    tx.lock_lanes({lane.group_key for lane in lanes})
    keys = sorted({lane.group_key for lane in lanes})
    awake = {LaneKey(key, bool(ordered)): sub for key, ordered, sub in tx.all("awake_among", group_keys=keys)}
    asked = [lane for lane in lanes if lane in awake]
    paused = _paused_among(tx, awake.values())
    contents = zip(asked, tx.first_jobs(asked, now_ms, 1), strict=True)
    _put_to_sleep(tx, [lane for lane, content in contents if not content.first(1) or awake[lane] in paused])


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


def _read(tx: Transaction, rows: Sequence[Row], now_ms: int, share: int) -> list[LaneRun]:
    lanes = [LaneKey(group_key, bool(ordered)) for group_key, ordered, _, _ in rows]
    contents = tx.first_jobs(lanes, now_ms, share)
    return [
        run_of(lane, turn, () if paused else content.first(share), now_ms)
        for lane, (_, _, turn, paused), content in zip(lanes, rows, contents, strict=True)
    ]


def _paused_among(tx: Transaction, subscription_ids: Iterable[str | None]) -> set[str | None]:
    """Which of these subscriptions take nothing at the moment."""
    ids = {subscription_id for subscription_id in subscription_ids if subscription_id}
    return {paused for (paused,) in tx.all("paused_subscriptions", ids=sorted(ids))} if ids else set()


def _put_to_sleep(tx: Transaction, lanes: Sequence[LaneKey]) -> None:
    """Lanes with nothing to give sleep until someone wakes them; those without a READY job are gone."""
    if lanes:
        tx.bulk("drop_empty_lanes", lanes)
        tx.bulk("park_lanes", lanes)


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

    async def read(self, now_ms: int, most: int, per_lane: int) -> list[LaneRun]:
        """The lanes whose turn it is, up to `most`, and what each may give: an equal share of `most` jobs."""
        return await self._database.read(lambda tx: read_lanes(tx, now_ms, most, per_lane))

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
    return [Moved(*row) for row in tx.all(statement, ids=[job_id for job_id, _ in jobs], **values)]


def move_and_wake(tx: Transaction, statement: str, jobs: Sequence[Row], **values: object) -> list[Moved]:
    """As `move`, and wake lanes: of jobs that may be claimed now, and those that jobs which are gone kept back."""
    moved = move(tx, statement, jobs, **values)
    wake_lanes(tx, {lane: job.subscription_id for job in moved for lane in job.lanes})
    return moved


def wake_lanes(tx: Transaction, lanes: dict[LaneKey, str | None]) -> None:
    """These lanes, each with its subscription, may have something to give."""
    if not lanes:
        return
    turns = tx.take_turns(len(lanes))
    rows = [(*lane, subscription_id, turn) for (lane, subscription_id), turn in zip(lanes.items(), turns, strict=True)]
    tx.bulk("wake_lanes", rows)
    tx.announce()


Chore = Callable[[Transaction], int]

AT_ONCE = 5000


def chores_due(tx: Transaction, now_ms: int) -> list[Chore]:
    """What has to be done now, each in a transaction of its own."""
    (due, expiring, lapsed_lanes) = tx.all("chores", now_ms=now_ms)[0]
    return [
        chore
        for needed, chore in (
            (expiring, lambda tx: _moved(tx, "expiring_jobs", "expire_jobs", now_ms)),
            (due, lambda tx: _moved(tx, "due_jobs", "promote_jobs", now_ms)),
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

"""Lanes: claimed as a whole by whoever publishes from them, and woken when jobs move.

To claim a lane is one write per lane instead of one per job (docs/decisions/0012).

A lane that is awake may have something to give. One that turns out to have nothing goes to sleep, or is dropped when it
is empty, and whoever changes that wakes it: so a poll costs what it claims, however much is blocked or finished.

While a lane is claimed, no one else publishes from it, and its jobs stay READY; a job is written once, when it is in
the queue. It moves only if it is still READY in the round that was published: so whoever comes late, or twice, changes
nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey, return_pause_s, share_of
from penstock.events.store.database import LaneJob, RepositoryPart, Row, Transaction, reads, writes
from penstock.events.store.repository.leader import check_leader
from penstock.events.store.statements import StoredMode, StoredState

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


class LaneRun(msgspec.Struct, frozen=True):
    """The jobs that a lane has to give, perhaps none; `turn` is the one it had when it was read."""

    lane: LaneKey
    turn: int
    jobs: list[ClaimedJob]
    rests_until_ms: int = 0
    """Jobs that came back from the queue repeatedly wait until then."""


class Lanes(RepositoryPart):
    """Lanes that have jobs to publish; StaleLeader when the owner's token is not the newest any more."""

    @reads
    def awake_ranges(self, tx: Transaction, owner: str, most: int, parts: int) -> list[AwakeRange]:
        """Return up to `most` lanes whose turn it is or that the owner has claimed, in up to `parts` ranges."""
        return [AwakeRange(*row) for row in tx.all("awake_ranges", owner=owner, most=most, parts=parts)]

    @reads
    def read(self, tx: Transaction, now_ms: int, most: int, per_lane: int) -> list[LaneRun]:
        """Return lanes whose turn it is, and what each may give: an equal share of `most` jobs, up to `per_lane`.

        In a large backlog a lane gives a few jobs at least, and others wait a little longer for their turn: to claim a
        lane and give it back costs as much as to publish two jobs.
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

    @writes
    def claim(
        self, tx: Transaction, lanes: Mapping[LaneKey, int], owner: LaneOwner, now_ms: int, lease_ms: int
    ) -> list[LaneKey]:
        """Claim lanes that are free, or this owner's already; return those that the owner has now.

        Each comes with the turn it had when its jobs were read: if it has another one it was served since then.
        """
        check_leader(tx, owner.token)
        tx.gate(exclusive=False)
        tx.lock_lanes({lane.group_key for lane in lanes})
        rows = tx.take_lanes(lanes, owner.name, now_ms + lease_ms)
        claimed = {LaneKey(group_key, bool(ordered)): subscription_id for group_key, ordered, subscription_id in rows}
        paused = _paused_among(tx, claimed.values())
        idle = [lane for lane, subscription in claimed.items() if subscription in paused]
        _release(tx, idle, owner)
        _put_to_sleep(tx, idle)
        return [lane for lane, subscription in claimed.items() if subscription not in paused]

    @writes
    def let_sleep(self, tx: Transaction, lanes: Sequence[LaneKey], owner: LaneOwner, now_ms: int) -> None:
        """Put lanes that were read with nothing to give to sleep until they are woken, unless that has changed."""
        check_leader(tx, owner.token)
        tx.gate(exclusive=False)
        keys = sorted({lane.group_key for lane in lanes})
        tx.lock_lanes(keys)
        awake = {LaneKey(key, bool(ordered)): sub for key, ordered, sub in tx.all("awake_among", group_keys=keys)}
        asked = [lane for lane in lanes if lane in awake]
        paused = _paused_among(tx, awake.values())
        contents = zip(asked, tx.first_jobs(asked, now_ms, 1), strict=True)
        _put_to_sleep(tx, [lane for lane, content in contents if not content.first(1) or awake[lane] in paused])

    @writes
    def mark_published(
        self,
        tx: Transaction,
        jobs: Sequence[ClaimedJob],
        done: Sequence[LaneKey],
        owner: LaneOwner,
        now_ms: int,
        lease_until_ms: int,
    ) -> None:
        """Mark jobs as in the queue, and free the lanes that are done: they go to the end of the line."""
        check_leader(tx, owner.token)
        tx.lock_lanes({job.group_key for job in jobs} | {lane.group_key for lane in done})
        tx.bulk("queue_published", [(job.id, job.publish_round, lease_until_ms, now_ms) for job in jobs])
        _release(tx, done, owner)

    @writes
    def hold(self, tx: Transaction, lanes: Sequence[tuple[LaneKey, int]], owner: LaneOwner) -> None:
        """Keep claimed lanes from being published from before a moment, given with each."""
        check_leader(tx, owner.token)
        tx.lock_lanes({lane.group_key for lane, _ in lanes})
        tx.bulk("hold_lanes", [(*lane, owner.name, until_ms) for lane, until_ms in lanes])

    @reads
    def count_awake(self, tx: Transaction, most: int) -> int:
        """Return how many lanes are awake, counted up to `most`."""
        count: int = tx.all("count_awake", most=most)[0][0]
        return count

    @reads
    def count_ready(self, tx: Transaction, most: int) -> int:
        """Return how many jobs wait to be published, counted up to `most`."""
        count: int = tx.all("count_ready", most=most)[0][0]
        return count


class Return(NamedTuple):
    """How often a job came back from the queue undelivered, and when it was last written."""

    times: int
    updated_at_ms: int


def run_of(lane: LaneKey, turn: int, jobs: Sequence[LaneJob], now_ms: int) -> LaneRun:
    """Return the run of jobs that were chosen of a lane."""
    claimed = [ClaimedJob(job.id, lane.group_key, job.mode, job.pool, job.publish_round, job.due_at_ms) for job in jobs]
    returns = [Return(job.publish_round - job.delivery_count, job.updated_at_ms) for job in jobs]
    return rested_run(lane, turn, claimed, returns, now_ms)


def rested_run(lane: LaneKey, turn: int, jobs: list[ClaimedJob], returns: Sequence[Return], now_ms: int) -> LaneRun:
    """Return the jobs before the first one that has to rest; if that is the first of all, the lane rests with it."""
    for number, came_back in enumerate(returns if lane.ordered else ()):
        until_ms = _rests_until_ms(came_back, now_ms)
        if until_ms > now_ms:
            return LaneRun(lane, turn, jobs[:number]) if number else LaneRun(lane, turn, jobs, until_ms)
    return LaneRun(lane, turn, jobs)


def _rests_until_ms(came_back: Return, now_ms: int) -> int:
    # It came back when it was last written, but not later than now, whatever that clock said.
    return min(came_back.updated_at_ms, now_ms) + round(return_pause_s(came_back.times) * 1000)


def _read(tx: Transaction, rows: Sequence[Row], now_ms: int, share: int) -> list[LaneRun]:
    lanes = [LaneKey(group_key, bool(ordered)) for group_key, ordered, _, _ in rows]
    contents = tx.first_jobs(lanes, now_ms, share)
    return [
        run_of(lane, turn, () if paused else content.first(share), now_ms)
        for lane, (_, _, turn, paused), content in zip(lanes, rows, contents, strict=True)
    ]


def _paused_among(tx: Transaction, subscription_ids: Iterable[str | None]) -> set[str | None]:
    """Return which of these subscriptions are paused."""
    ids = {subscription_id for subscription_id in subscription_ids if subscription_id}
    return {paused for (paused,) in tx.all("paused_subscriptions", ids=sorted(ids))} if ids else set()


def _put_to_sleep(tx: Transaction, lanes: Sequence[LaneKey]) -> None:
    """Put lanes with nothing to give to sleep until they are woken; drop those without a READY job."""
    if lanes:
        tx.bulk("drop_empty_lanes", lanes)
        tx.bulk("park_lanes", lanes)


def _release(tx: Transaction, lanes: Sequence[LaneKey], owner: LaneOwner) -> None:
    """Free lanes; drop those without a READY job.

    They must be locked before, by a statement of its own: then whoever creates a job for one of them either has been
    seen, or waits and creates the lane again.
    """
    if lanes:
        tx.bulk("drop_landed_lanes", [(*lane, owner.name) for lane in lanes])
        turns = tx.take_turns(len(lanes))
        rows = [(*lane, owner.name, turn) for lane, turn in zip(lanes, turns, strict=True)]
        tx.bulk("land_claimed_lanes", rows)


class Moved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that was moved, and the state it had before."""

    id: str
    group_key: str
    mode: int
    subscription_id: str | None
    before: int

    @property
    def lanes(self) -> set[LaneKey]:
        """Its own lane, and the one it kept back."""
        own = LaneKey(self.group_key, self.mode != StoredMode.IMMEDIATE)
        return {own, LaneKey(self.group_key, True)} if self.before == StoredState.ERROR else {own}


def move(tx: Transaction, statement: str, jobs: Sequence[Row], **values: object) -> list[Moved]:
    """Move jobs, given as (id, group key), by a guarded statement; those that had moved on already are left out."""
    if not jobs:
        return []
    tx.lock_lanes({group_key for _, group_key in jobs})
    return [Moved(*row) for row in tx.all(statement, ids=[job_id for job_id, _ in jobs], **values)]


def move_and_wake(tx: Transaction, statement: str, jobs: Sequence[Row], **values: object) -> list[Moved]:
    """Move jobs as `move` does, and wake lanes: those of the jobs, and those that the jobs kept back."""
    moved = move(tx, statement, jobs, **values)
    wake_lanes(tx, {lane: job.subscription_id for job in moved for lane in job.lanes})
    return moved


def wake_lanes(tx: Transaction, lanes: Mapping[LaneKey, str | None]) -> None:
    """Wake lanes, each given with its subscription: they may have something to give."""
    if not lanes:
        return
    turns = tx.take_turns(len(lanes))
    rows = [(*lane, subscription_id, turn) for (lane, subscription_id), turn in zip(lanes.items(), turns, strict=True)]
    tx.bulk("wake_lanes", rows)
    tx.announce()

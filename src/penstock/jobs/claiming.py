"""Claiming jobs to publish, and telling what became of them (rulings 16 to 18); the rules are those of core.plan.

A lane that is awake may have something to give. One that turns out to have nothing goes to sleep, or is dropped when
it is empty, and whoever changes that wakes it: so a poll costs what it claims, however much is blocked or done.
"""

from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey, share_of
from penstock.jobs.leading import check_leader
from penstock.jobs.stored_state import MODE_OF
from penstock.jobs.transaction import Transaction
from penstock.jobs.waking import move, move_and_wake


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

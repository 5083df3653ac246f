"""Claiming whole lanes to publish from, as Spark does: one write per lane instead of one per job (decision 0012).

While a lane is claimed nobody else publishes from it, and its jobs stay READY; a job is written once, when it is in the
queue. A job that is told to be there moves only if it is still READY in the same round: so whoever comes late, or
twice, changes nothing.
"""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.domain.pointer import DispatchMode
from penstock.jobs.claiming import paused_among, put_to_sleep
from penstock.jobs.leading import check_leader
from penstock.jobs.transaction import Transaction


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

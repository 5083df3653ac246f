"""Jobs that move, and what it means for their lanes."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from penstock.domain.order import LaneKey
from penstock.jobs.stored_state import StoredMode, StoredState
from penstock.jobs.transaction import Row, Transaction


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

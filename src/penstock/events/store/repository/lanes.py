"""Lanes: claimed as a whole by whoever publishes from them, and woken when jobs move.

To claim a lane is one write per lane instead of one per job (docs/decisions/0012).

A lane that is awake may have something to give. One that turns out to have nothing goes to sleep, or is dropped when it
is empty, and whoever changes that wakes it: so a poll costs what it claims, however much is blocked or finished.

While a lane is claimed, no one else publishes from it, and its jobs stay READY; a job is written once, when it is in
the queue. It moves only if it is still READY in the round that was published: so whoever comes late, or twice, changes
nothing. So none of this waits for the disk: what a crash of the machine undoes is claimed and published again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.domain.pace.credit import LANE_CREDIT, AwakeStream, CreditBook
from penstock.events.store.database import (
    LaneQuestion,
    RepositoryPart,
    Row,
    Transaction,
    reads,
    writes_unflushed,
)
from penstock.events.store.repository.lane_runs import LaneRow, LaneRun, run_of
from penstock.events.store.repository.leader import check_leader
from penstock.events.store.repository.subscriptions import read_pool_limits
from penstock.events.store.statements import StoredMode, StoredState

_FEW = 4
_MANY = 50


class LaneOwner(msgspec.Struct, frozen=True):
    """In whose name lanes are claimed, and the token of the leader on whose behalf."""

    name: str
    token: int | None = None


class AwakeRange(msgspec.Struct, frozen=True):
    """Lanes of a stream that may have something to give, whose turns lie between two numbers, both included.

    Without a stream they are the lanes that the owner of a round has claimed already.
    """

    stream: AwakeStream | None
    first_turn: int
    last_turn: int
    lanes: int
    jobs: int
    """How many jobs they may give together."""


class Lanes(RepositoryPart):
    """Lanes that have jobs to publish; StaleLeader when the owner's token is not the newest any more."""

    @reads
    def awake_ranges(self, tx: Transaction, owner: str, now_ms: int, most: int, credit: CreditBook) -> list[AwakeRange]:
        """Return lanes whose turn it is, by stream, with how many jobs each stream may give, up to `most` together.

        First those that the owner has claimed already, if it does its round again.
        """
        ((first, last, lanes),) = tx.all("claimed_range", owner=owner)
        ranges = [AwakeRange(None, first, last, lanes, most)] if lanes else []
        grants = credited_streams(tx, now_ms, most, credit)
        for pool, subscription, first, last, lanes in tx.awake_ranges(grants):
            stream = AwakeStream(pool, subscription)
            ranges.append(AwakeRange(stream, first, last, lanes, grants[stream]))
            credit.published(stream, grants[stream])
        return ranges

    @reads
    def read(
        self, tx: Transaction, now_ms: int, most: int, credit: CreditBook, lane_credit: int = LANE_CREDIT
    ) -> list[LaneRun]:
        """Return lanes whose turn it is in pools that have credit, and what each may give: up to `most` jobs."""
        grants = credited_streams(tx, now_ms, most, credit)
        waiting: dict[AwakeStream, list[LaneRow]] = {stream: [] for stream in grants}
        for row in map(_lane_row, tx.awake_lanes(grants)):
            waiting[row.stream].append(row)
        runs: list[LaneRun] = []
        left = dict(grants)
        while waiting := {
            stream: rows for stream, rows in waiting.items() if rows and 2 * left[stream] > grants[stream]
        }:
            chosen = {stream: _next_lanes(rows, left[stream], lane_credit) for stream, rows in waiting.items()}
            questions = [question for lanes in chosen.values() for question in lanes]
            contents = iter(tx.first_jobs([question for _, question in questions], now_ms, lane_credit))
            for stream, lanes in chosen.items():
                for row, question in lanes:
                    run = run_of(row, next(contents), min(question.share, left[stream]), lane_credit, now_ms)
                    left[stream] -= len(run.jobs)
                    runs.append(run)
                del waiting[stream][: len(lanes)]
        for stream, grant in grants.items():
            credit.published(stream, grant - left[stream])
        return runs

    @writes_unflushed
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
        _release(tx, dict.fromkeys(idle), owner)
        _put_to_sleep(tx, dict.fromkeys(idle))
        return [lane for lane, subscription in claimed.items() if subscription not in paused]

    @writes_unflushed
    def let_sleep(
        self,
        tx: Transaction,
        lanes: Sequence[LaneKey],
        owner: LaneOwner,
        now_ms: int,
        lane_credit: int = LANE_CREDIT,
    ) -> None:
        """Put lanes that were read with nothing to give to sleep until they are woken, unless that has changed.

        Lanes whose next jobs are for another pool stay awake and move there.
        """
        check_leader(tx, owner.token)
        tx.gate(exclusive=False)
        keys = sorted({lane.group_key for lane in lanes})
        tx.lock_lanes(keys)
        asked = set(lanes)
        rows = [row for row in map(_lane_row, tx.all("lanes_among", group_keys=keys)) if row.lane in asked]
        contents = tx.first_jobs([LaneQuestion(row.lane, row.pool, 1) for row in rows], now_ms, lane_credit)
        looked = [run_of(row, found, 1, lane_credit, now_ms) for row, found in zip(rows, contents, strict=True)]
        tx.bulk("move_lanes", [(*run.lane, run.moves_to) for run in looked if run.moves_to])
        idle = {run.lane: run.waits_for for run in looked if not run.jobs and not run.moves_to}
        waits = _still_waiting(tx, idle)
        _put_to_sleep(tx, {lane: waits[lane] for lane, job_id in idle.items() if job_id == waits[lane]})

    @writes_unflushed
    def mark_published(
        self,
        tx: Transaction,
        jobs: Sequence[ClaimedJob],
        done: Mapping[LaneKey, str | None],
        owner: LaneOwner,
        now_ms: int,
        lease_until_ms: int,
    ) -> None:
        """Mark jobs as in the queue, and free the lanes that are done: they go to the end of the line.

        A lane that is given with a job sleeps until that one has ended.
        """
        check_leader(tx, owner.token)
        tx.lock_lanes({job.group_key for job in jobs} | {lane.group_key for lane in done})
        tx.bulk("queue_published", [(job.id, job.publish_round, lease_until_ms, now_ms) for job in jobs])
        _release(tx, done, owner)

    @writes_unflushed
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


def credited_streams(tx: Transaction, now_ms: int, most: int, credit: CreditBook) -> dict[AwakeStream, int]:
    """Return how many jobs each stream may give now, up to `most` together; the streams take turns."""
    streams = [stream for stream, _ in sorted(tx.awake_streams(), key=lambda found: found[1])]
    grants = list(credit.grants(streams, now_ms, tx.jobs_on_their_way, lambda: read_pool_limits(tx)).items())
    part = max(1, most // max(1, len(grants)))
    return {stream: min(jobs, part) for stream, jobs in grants[:most]}


def _lane_row(row: Row) -> LaneRow:
    group_key, ordered, turn, paused, pool, subscription = row
    return LaneRow(LaneKey(group_key, bool(ordered)), turn, bool(paused), pool, AwakeStream(pool, subscription))


def _next_lanes(rows: Sequence[LaneRow], grant: int, lane_credit: int) -> list[tuple[LaneRow, LaneQuestion]]:
    """Return the lanes to read now, with an equal share of the jobs that their stream may give.

    Of many jobs a lane gives a few at least, and others wait a little longer for their turn: to claim a lane and give
    it back costs as much as to publish two jobs.
    """
    share = max(grant // len(rows), min(_FEW, 1 + grant // _MANY))
    return [
        (row, LaneQuestion(row.lane, row.pool, min(share, lane_credit) if row.lane.ordered else share))
        for row in rows[: max(1, grant // share)]
    ]


def _paused_among(tx: Transaction, subscription_ids: Iterable[str | None]) -> set[str | None]:
    """Return which of these subscriptions are paused."""
    ids = {subscription_id for subscription_id in subscription_ids if subscription_id}
    return {paused for (paused,) in tx.all("paused_subscriptions", ids=sorted(ids))} if ids else set()


def _still_waiting(tx: Transaction, lanes: Mapping[LaneKey, str | None]) -> dict[LaneKey, str | None]:
    """Return for each lane the job it waits for, if that one is still on its way."""
    ids = [job_id for job_id in lanes.values() if job_id is not None]
    on_their_way = {job_id for (job_id,) in tx.all("still_on_their_way", ids=ids)} if ids else set()
    return {lane: job_id if job_id in on_their_way else None for lane, job_id in lanes.items()}


def _put_to_sleep(tx: Transaction, lanes: Mapping[LaneKey, str | None]) -> None:
    """Put lanes with nothing to give to sleep until they are woken; drop those without a READY job."""
    if lanes:
        tx.bulk("drop_empty_lanes", list(lanes))
        tx.bulk("park_lanes", [(*lane, waits_for) for lane, waits_for in lanes.items()])


def _release(tx: Transaction, lanes: Mapping[LaneKey, str | None], owner: LaneOwner) -> None:
    """Free lanes; drop those without a READY job.

    They must be locked before, by a statement of its own: then whoever creates a job for one of them either has been
    seen, or waits and creates the lane again.
    """
    if lanes:
        tx.bulk("drop_landed_lanes", [(*lane, owner.name) for lane in lanes])
        turns = tx.take_turns(len(lanes))
        waits = _still_waiting(tx, lanes)
        rows = [(*lane, owner.name, turn, waits[lane]) for lane, turn in zip(lanes, turns, strict=True)]
        tx.bulk("land_claimed_lanes", rows)


class Moved(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that was moved, and the state it had before."""

    id: str
    group_key: str
    mode: int
    subscription_id: str | None
    pool: str
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
    lanes: dict[LaneKey, LaneOrigin] = {}
    for job in moved:
        for lane in job.lanes:
            lanes.setdefault(lane, LaneOrigin(job.subscription_id, job.pool))
    wake_lanes(tx, lanes)
    return moved


class LaneOrigin(NamedTuple):
    """The subscription and the pool of a lane that has a job."""

    subscription_id: str | None
    pool: str


def call_lanes(tx: Transaction, lanes: Mapping[LaneKey, LaneOrigin]) -> None:
    """Say that lanes have new jobs: they wake, unless enough of their jobs are on their way already."""
    _wake(tx, "call_lanes", lanes)


def wake_lanes(tx: Transaction, lanes: Mapping[LaneKey, LaneOrigin]) -> None:
    """Wake lanes: they may have something to give."""
    _wake(tx, "wake_lanes", lanes)


def wake_waiting(tx: Transaction, job_ids: Sequence[str]) -> None:
    """Wake the lanes that waited for the end of one of these jobs; to be called after the jobs were written."""
    if job_ids and tx.all("wake_waiting_lanes", ids=list(job_ids)):
        tx.announce()


def _wake(tx: Transaction, statement: str, lanes: Mapping[LaneKey, LaneOrigin]) -> None:
    if not lanes:
        return
    turns = tx.take_turns(len(lanes))
    rows = [(*lane, *origin, turn) for (lane, origin), turn in zip(lanes.items(), turns, strict=True)]
    tx.bulk(statement, rows)
    tx.announce()

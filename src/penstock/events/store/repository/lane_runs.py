"""What a lane may give: its first jobs, of one pool, and a few only while others of an ordered lane are under way."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey, is_high_priority, return_pause_s
from penstock.domain.pace.credit import AwakeStream, lane_room
from penstock.domain.pointer import DispatchMode
from penstock.events.store.database import LaneContent, LaneJob


class LaneRun(msgspec.Struct, frozen=True):
    """The jobs that a lane has to give, perhaps none; `turn` is the one it had when it was read."""

    lane: LaneKey
    turn: int
    jobs: list[ClaimedJob]
    rests_until_ms: int = 0
    """Jobs that came back from the queue repeatedly wait until then."""
    waits_for: str | None = None
    """The job on its way whose end wakes the lane, because with these enough of its jobs are on their way."""
    moves_to: str | None = None
    """The pool of its next jobs, if that is another one than before."""
    stream: AwakeStream | None = None
    """The stream whose credit the jobs use."""


class LaneRow(NamedTuple):
    """A lane whose turn it is."""

    lane: LaneKey
    turn: int
    paused: bool
    pool: str
    stream: AwakeStream


class Return(NamedTuple):
    """How often a job came back from the queue undelivered, and when it was last written."""

    times: int
    updated_at_ms: int


def return_of(publish_round: int, deliveries: int, due_at_ms: int, updated_at_ms: int) -> Return:
    """Return how often a job came back: not at all if its last delivery has set when it is due (SCHED-PUBLISH-5)."""
    is_retry = deliveries > 0 and due_at_ms >= updated_at_ms
    return Return(0 if is_retry else publish_round - deliveries, updated_at_ms)


def run_of(row: LaneRow, content: LaneContent, most: int, lane_credit: int, now_ms: int) -> LaneRun:
    """Return what a lane may give: up to `most` jobs, all for one pool."""
    jobs = [] if row.paused else content.first(most)
    claimed = [claimed_job(row.lane, job) for job in jobs]
    returns = [return_of(job.publish_round, job.delivery_count, job.due_at_ms, job.updated_at_ms) for job in jobs]
    tried = bool(jobs) and jobs[0].delivery_count > 0 and jobs[0].mode is DispatchMode.BLOCK_ON_ERROR
    offer = LaneOffer(claimed, returns, tried, content.on_their_way)
    run = credited_run(row.lane, row.turn, row.pool, offer, lane_credit, now_ms)
    return msgspec.structs.replace(run, stream=row.stream)


def claimed_job(lane: LaneKey, job: LaneJob) -> ClaimedJob:
    """Return a job of a lane as it is published."""
    high_priority = is_high_priority(job.sequence)
    return ClaimedJob(job.id, lane.group_key, job.mode, job.pool, job.publish_round, job.due_at_ms, high_priority)


class LaneOffer(NamedTuple):
    """The first jobs of a lane that nothing holds back, and what is known of them and of those before them."""

    jobs: list[ClaimedJob]
    returns: Sequence["Return"]
    first_was_tried: bool
    on_their_way: Sequence[str]


def credited_run(lane: LaneKey, turn: int, pool: str, offer: LaneOffer, lane_credit: int, now_ms: int) -> LaneRun:
    """Return what a lane may give of its first jobs: those for one pool, and of an ordered lane a few.

    Jobs for another pool than before wait until none is on its way in that one: there they could be overtaken.
    """
    if not offer.jobs:
        return LaneRun(lane, turn, [])
    on_their_way = list(offer.on_their_way)
    if offer.jobs[0].pool != pool:
        if on_their_way:
            return LaneRun(lane, turn, [], waits_for=on_their_way[-1])
        return LaneRun(lane, turn, [], moves_to=offer.jobs[0].pool)
    jobs = list(takewhile(lambda job: job.pool == pool, offer.jobs))
    if not lane.ordered:
        return LaneRun(lane, turn, jobs)
    room = lane_room(len(on_their_way), lane_credit, tried=offer.first_was_tried)
    if not room:
        return LaneRun(lane, turn, [], waits_for=on_their_way[len(on_their_way) // 2])
    run = rested_run(lane, turn, jobs[:room], offer.returns, now_ms)
    sent = on_their_way + [job.id for job in run.jobs]
    if len(jobs) < len(offer.jobs) or offer.first_was_tried:
        return msgspec.structs.replace(run, waits_for=sent[-1])
    return msgspec.structs.replace(run, waits_for=sent[len(sent) // 2]) if len(sent) >= lane_credit else run


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

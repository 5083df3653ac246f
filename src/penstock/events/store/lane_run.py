"""The jobs of one lane: as they are read, and as they go to the queue together."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey, Position, first_of_lane, return_pause_s
from penstock.domain.pointer import DispatchMode


class LaneJob(NamedTuple):
    """A job that waits in a lane: the columns of `{lane job}` in sql/order.sql."""

    id: str
    mode: DispatchMode
    sequence: int
    created_at_ms: int
    due_at_ms: int
    pool: str
    publish_round: int
    delivery_count: int
    updated_at_ms: int

    @property
    def position(self) -> Position:
        """Its place in its group."""
        return Position(self.sequence, self.created_at_ms, self.id)


class LaneContent(NamedTuple):
    """The first jobs of a lane, of each mode, and the first job of its group that BLOCK_ON_ERROR jobs must not pass."""

    blocker: Position | None
    jobs: list[LaneJob]

    def first(self, most: int) -> list[LaneJob]:
        """The first jobs that may go, in order."""
        return first_of_lane(self.jobs, self.blocker, most)


class LaneRun(msgspec.Struct, frozen=True):
    """What a lane has to give, nothing perhaps; `turn` is the one it had when it was read."""

    lane: LaneKey
    turn: int
    jobs: list[ClaimedJob]
    rests_until_ms: int = 0
    """Jobs that came back from the queue again and again wait until then."""


class Return(NamedTuple):
    """How often a job came back from the queue undelivered, and when it was written last."""

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
    # It came back when it was written last, but not later than now, whatever that clock said.
    return min(came_back.updated_at_ms, now_ms) + round(return_pause_s(came_back.times) * 1000)

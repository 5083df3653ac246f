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


def run_of(lane: LaneKey, turn: int, jobs: Sequence[LaneJob], now_ms: int) -> LaneRun:
    """The run of jobs that were chosen of a lane."""
    return LaneRun(
        lane,
        turn,
        [ClaimedJob(job.id, lane.group_key, job.mode, job.pool, job.publish_round, job.due_at_ms) for job in jobs],
        max((rests_until_ms(lane, job.publish_round, job.updated_at_ms, now_ms) for job in jobs), default=0),
    )


def rests_until_ms(lane: LaneKey, publish_round: int, updated_at_ms: int, now_ms: int) -> int:
    """Until when a job that came back keeps its lane from the queue; 0 if it does not."""
    pause_s = return_pause_s(publish_round) if lane.ordered else 0.0
    # It came back when it was written last, but not later than now, whatever that clock said.
    return min(updated_at_ms, now_ms) + round(pause_s * 1000) if pause_s else 0

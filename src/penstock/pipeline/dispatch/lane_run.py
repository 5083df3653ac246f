"""The jobs of one lane as a task gets them from the plan: together, in order."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
import pyarrow

from penstock.domain.job import ClaimedJob
from penstock.domain.order import LaneKey
from penstock.domain.pointer import DispatchMode
from penstock.scheduler.return_pause import return_pause_s

COLUMNS = (
    "group_key", "ordered", "turn", "may_go", "id", "mode", "pool", "publish_round", "due_at_ms", "updated_at_ms",
)  # fmt: skip
"""What a task needs of the plan."""

_MODES = {mode.value: mode for mode in DispatchMode}


class LaneRun(msgspec.Struct, frozen=True):
    """What a lane has to give, nothing perhaps; `turn` is the one it had when it was read."""

    lane: LaneKey
    turn: int
    jobs: list[ClaimedJob]
    rests_until_ms: int
    """Jobs that came back from the queue again and again wait until then (`return_pause_s`)."""


def lane_runs(batches: Iterable[pyarrow.RecordBatch], now_ms: int) -> Iterator[LaneRun]:
    """The runs in a task's rows."""
    rows = (row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True))
    for (group_key, ordered, turn), of_lane in groupby(rows, key=lambda row: row[:3]):
        jobs, rests_until_ms = [], 0
        for _, _, _, may_go, job_id, mode, pool, publish_round, due_at_ms, updated_at_ms in of_lane:
            if may_go:
                jobs.append(ClaimedJob(job_id, group_key, _MODES[mode], pool, publish_round, None, due_at_ms))
                if ordered and (pause_s := return_pause_s(publish_round)):
                    # It came back when it was written last, but not later than now, whatever that clock said.
                    rests_until_ms = max(rests_until_ms, min(updated_at_ms, now_ms) + round(pause_s * 1000))
        yield LaneRun(LaneKey(group_key, ordered), turn, jobs, rests_until_ms)


def chunks(runs: Iterable[LaneRun], most: int) -> Iterator[list[LaneRun]]:
    """Runs by the few: of so many jobs and idle lanes together, or of one lane that has more."""
    chunk: list[LaneRun] = []
    size = 0
    for run in runs:
        weight = max(1, len(run.jobs))
        if chunk and size + weight > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(run)
        size += weight
    if chunk:
        yield chunk

"""Which groups deserve a close look: everything in one pass over rows in the order of positions. Pure, and vectorised.

It asks less than the checks do, so that it may suspect a sound group but never passes over a broken one: whether
something behind a job began before the job let go at the latest, clocks and moments of making aside.
"""

from typing import NamedTuple

import numpy
from numpy.typing import NDArray

Numbers = NDArray[numpy.int64]
Marks = NDArray[numpy.bool_]

NONE_MS = -1
LATEST_MS = (1 << 42) - 1
"""In 2109; times are cut to it. The lanes of a batch are laid end to end, so its groups need the bits above."""
_SPAN = 1 << 43
_MOST_JOBS = 1 << 20

BLOCKS, PASSES = 2, 1
"""The modes that are ordered."""


class Rows(NamedTuple):
    """One row for each attempt of a job, one for a job without; sorted by group, position and time."""

    group: Numbers
    job: Numbers
    mode: Numbers
    at_ms: Numbers
    end_ms: Numbers
    strict_ms: Numbers
    """Until when the job holds back BLOCK_ON_ERROR jobs; of unordered jobs NONE_MS, here and below."""
    loose_ms: Numbers
    """Until when the row holds back all that is ordered: the end of the attempt, or of waiting for the first one."""
    delivered: Numbers
    owes_proof: Numbers
    suspicious: Numbers
    """Whether the row alone is reason enough."""
    status: Numbers
    outcome: Numbers
    begun: Numbers
    """Deliveries of the job that were begun and should be on record."""

    def cut(self, start: int, end: int) -> "Rows":
        """Some of the rows."""
        return Rows(*(column[start:end] for column in self))


def joined(first: Rows, second: Rows) -> Rows:
    """The rows of both, in this order."""
    return Rows(*(numpy.concatenate(pair) for pair in zip(first, second, strict=True)))


class Reach(NamedTuple):
    """How far the jobs of a group that came by hold back those to come."""

    group: int | None = None
    strict_ms: int = NONE_MS
    loose_ms: int = NONE_MS


class Screened(NamedTuple):
    """What was seen of whole jobs: the groups to look at, and what the jobs that follow need to know."""

    groups: Numbers
    reach: Reach
    unrecorded: int
    """Deliveries that were begun and are not on record: each may have reached its subscriber once more."""
    statuses: Numbers
    """The status of each job."""


def last_job_begins(rows: Rows) -> int:
    """Where the rows of the last job begin: the next batch may have more of them."""
    changes = numpy.flatnonzero((rows.group[1:] != rows.group[:-1]) | (rows.job[1:] != rows.job[:-1]))
    return int(changes[-1]) + 1 if len(changes) else 0


def screened(rows: Rows, reach: Reach) -> Screened:
    """Look at whole jobs, of which there are some; `reach` is what came before."""
    is_first = numpy.ones(len(rows.job), dtype=bool)
    is_first[1:] = (rows.group[1:] != rows.group[:-1]) | (rows.job[1:] != rows.job[:-1])
    starts = numpy.flatnonzero(is_first)
    if len(starts) > _MOST_JOBS:
        raise ValueError(f"a batch has {len(starts)} jobs: use batches of {_MOST_JOBS} rows or fewer")
    group, mode = rows.group[starts], rows.mode[starts]
    strict, loose = (numpy.maximum.reduceat(column, starts) for column in (rows.strict_ms, rows.loose_ms))
    strict_before, strict_last = _before(group, strict, reach.group, reach.strict_ms)
    loose_before, loose_last = _before(group, loose, reach.group, reach.loose_ms)
    begins = numpy.minimum.reduceat(numpy.where(rows.at_ms < 0, LATEST_MS + 1, rows.at_ms), starts)
    limit = numpy.where(mode == BLOCKS, numpy.maximum(strict_before, loose_before), loose_before)
    delivered = numpy.add.reduceat(rows.delivered, starts)
    recorded = numpy.add.reduceat((rows.at_ms >= 0).astype(numpy.int64), starts)
    suspected = (
        ((mode > 0) & (begins < limit))
        | (delivered > 1)
        | ((rows.owes_proof[starts] > 0) & (delivered == 0))
        | (numpy.add.reduceat(rows.suspicious | _overlaps_itself(rows, is_first), starts) > 0)
    )
    return Screened(
        numpy.unique(group[suspected]),
        Reach(int(group[-1]), strict_last, loose_last),
        int(numpy.maximum(rows.begun[starts] - recorded, 0).sum()),
        rows.status[starts],
    )


def _before(group: Numbers, until_ms: Numbers, reach_group: int | None, reach_ms: int) -> tuple[Numbers, int]:
    """For each job the largest of those before it in its group, or less than nothing; and that of the last group."""
    is_new = numpy.ones(len(group), dtype=bool)
    is_new[1:] = group[1:] != group[:-1]
    # Every group has a span of numbers above those of the groups before it: so one pass does for all.
    offset = (numpy.cumsum(is_new) - 1) * _SPAN
    reached = numpy.maximum.accumulate(until_ms + 1 + offset)
    if reach_group == group[0]:
        reached = numpy.maximum(reached, reach_ms + 1)
        seed = reach_ms + 1
    else:
        seed = 0
    before = numpy.concatenate(([seed], reached[:-1])) - offset - 1
    return before, int(reached[-1] - offset[-1]) - 1


def _overlaps_itself(rows: Rows, is_first: Marks) -> Numbers:
    overlaps = numpy.zeros(len(rows.job), dtype=numpy.int64)
    overlaps[1:] = (rows.at_ms[1:] < rows.end_ms[:-1]) & ~is_first[1:] & (rows.mode[1:] > 0) & (rows.at_ms[1:] >= 0)
    return overlaps

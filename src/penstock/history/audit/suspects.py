"""Finds suspect groups: matches jobs with attempts, then checks the jobs of groups in order. Pure and vectorised.

It checks less than the checks do, so it may suspect a sound group but never misses a broken one: whether something
behind a job began before the job's hold ended at the latest, ignoring clock tolerance and creation times.
"""

from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from penstock.history.audit.packed_rows import Numbers

Marks = NDArray[numpy.bool_]
NONE_MS = -1

LATEST_MS = (1 << 42) - 1
"""In 2109; later times are cut. The lanes of groups are laid end to end and need the bits above."""

_SPAN = 1 << 43
_LANES_AT_ONCE = 1 << 19
_NEVER_MS = LATEST_MS + 1

BLOCKS, PASSES = 2, 1
"""The ordered modes."""


class Jobs(NamedTuple):
    """Jobs in any order; jobs and groups are represented by hashes."""

    job: Numbers
    group: Numbers
    sequence: Numbers
    created_ms: Numbers
    mode: Numbers
    strict_ms: Numbers
    """Until when the job holds back BLOCK_ON_ERROR jobs; NONE_MS for unordered jobs."""
    untried: Marks
    """Whether it holds back NEXT_ON_ERROR jobs as long, because no delivery of it has begun."""
    owes_proof: Marks
    is_damaged: Marks
    begun: Numbers
    """Deliveries of the job that have begun and should be on record."""
    first_bytes: Numbers
    """The first eight bytes of the id, ordered as unsigned numbers; then the next eight."""
    next_bytes: Numbers


class AttemptColumns(NamedTuple):
    """Attempts in any order."""

    job: Numbers
    at_ms: Numbers
    end_ms: Numbers
    delivered: Marks
    is_damaged: Marks


class Places(NamedTuple):
    """Ordered jobs in any order: the position of each, when it began, and until when it holds back others."""

    group: Numbers
    sequence: Numbers
    created_ms: Numbers
    mode: Numbers
    begins_ms: Numbers
    strict_ms: Numbers
    """For all BLOCK_ON_ERROR jobs behind it."""
    loose_ms: Numbers
    """For all ordered jobs: until the end of its attempts, or of waiting for the first one."""
    first_bytes: Numbers
    next_bytes: Numbers


class Matched(NamedTuple):
    """What jobs and their attempts show together."""

    places: Places
    suspect_groups: Numbers
    without_job: Marks
    """Which attempts have no job."""
    unrecorded: int
    """Deliveries that have begun and are not recorded: each may have reached its subscriber."""


def match_attempts(jobs: Jobs, attempts: AttemptColumns) -> Matched:
    """Match jobs with attempts; all attempts of each job are given, and all jobs of each attempt."""
    by_job, order = numpy.argsort(jobs.job), numpy.argsort(attempts.job)
    known, sought = jobs.job[by_job], attempts.job[order]
    at = numpy.searchsorted(known, sought)
    is_known = at < len(known)
    is_known[is_known] = known[at[is_known]] == sought[is_known]
    without_job = numpy.ones(len(order), dtype=bool)
    order = order[is_known]
    without_job[order] = False
    # Jobs stay in place, because moving all their columns takes longer than indexing them.
    tried, at_job = AttemptColumns._make(column[order] for column in attempts), by_job[at[is_known]]
    runs = _Runs(at_job, len(jobs.job))
    delivered = runs.total(tried.delivered)
    suspected = (
        (delivered > 1) | (jobs.owes_proof & (delivered == 0)) | jobs.is_damaged | (runs.total(tried.is_damaged) > 0)
    )
    suspected[by_job[_is_double(known)]] = True
    suspected[_overlapping(tried, at_job, runs, jobs.mode)] = True
    return Matched(
        _places(jobs, tried, runs),
        numpy.unique(jobs.group[suspected]),
        without_job,
        int(numpy.maximum(jobs.begun - runs.total(tried.at_ms >= 0), 0).sum()),
    )


class _Runs:
    """The attempts of each job, which lie together, reduced to one number per job."""

    def __init__(self, at_job: Numbers, jobs: int) -> None:
        self._jobs = jobs
        self._starts = numpy.flatnonzero(numpy.diff(at_job, prepend=-1))
        self._at_job = at_job[self._starts]
        self.lengths = numpy.diff(self._starts, append=len(at_job))

    def total(self, marks: Marks) -> Numbers:
        """Return how many of a job's attempts are marked."""
        return self._over_jobs(numpy.add, marks.astype(numpy.int64), 0)

    def least(self, column: Numbers, otherwise: int) -> Numbers:
        """Return the smallest number of a job's attempts."""
        return self._over_jobs(numpy.minimum, column, otherwise)

    def most(self, column: Numbers, otherwise: int) -> Numbers:
        """Return the largest number of a job's attempts."""
        return self._over_jobs(numpy.maximum, column, otherwise)

    def _over_jobs(self, reduction: numpy.ufunc, column: Numbers, otherwise: int) -> Numbers:
        found = numpy.full(self._jobs, otherwise, dtype=numpy.int64)
        if len(self._starts):
            found[self._at_job] = reduction.reduceat(column, self._starts)
        return found


def _is_double(job: Numbers) -> Marks:
    """Mark hashes that occur twice: the same job, or two that share a hash, which the checks separate."""
    is_double: Marks = numpy.zeros(len(job), dtype=bool)
    is_same = job[1:] == job[:-1]
    is_double[1:] |= is_same
    is_double[:-1] |= is_same
    return is_double


def _overlapping(tried: AttemptColumns, at_job: Numbers, runs: _Runs, mode: Numbers) -> Numbers:
    """Return the ordered jobs with an attempt that began before another had ended."""
    several = numpy.flatnonzero(numpy.repeat(runs.lengths > 1, runs.lengths))
    # Of two that began in the same millisecond, the shorter may have ended when the other began.
    several = several[numpy.lexsort((tried.end_ms[several], tried.at_ms[several], at_job[several]))]
    at_ms, end_ms, at_job = tried.at_ms[several], tried.end_ms[several], at_job[several]
    overlaps = (at_job[1:] == at_job[:-1]) & (at_ms[1:] < end_ms[:-1]) & (at_ms[1:] >= 0)
    found: Numbers = at_job[1:][overlaps]
    ordered: Numbers = found[mode[found] > 0]
    return ordered


def _places(jobs: Jobs, tried: AttemptColumns, runs: _Runs) -> Places:
    untried_ms = numpy.where(jobs.untried, jobs.strict_ms, NONE_MS)
    loose_ms = numpy.maximum(runs.most(tried.end_ms, NONE_MS), untried_ms)
    places = Places(
        group=jobs.group,
        sequence=jobs.sequence,
        created_ms=jobs.created_ms,
        mode=jobs.mode,
        begins_ms=runs.least(numpy.where(tried.at_ms < 0, _NEVER_MS, tried.at_ms), _NEVER_MS),
        strict_ms=numpy.maximum(jobs.strict_ms, loose_ms),
        loose_ms=loose_ms,
        first_bytes=jobs.first_bytes,
        next_bytes=jobs.next_bytes,
    )
    return Places(*(column[jobs.mode > 0] for column in places))


def out_of_turn(places: Places) -> Numbers:
    """Return the groups in which something began too early, or whose order is uncertain; all their jobs are given."""
    if not len(places.group):
        return places.group
    names, lane = numpy.unique(places.group, return_inverse=True)
    order, uncertain = _order(places, lane)
    lane = lane[order]
    strict_before, loose_before = (_before(lane, column[order]) for column in (places.strict_ms, places.loose_ms))
    limit = numpy.where(places.mode[order] == BLOCKS, strict_before, loose_before)
    early = lane[places.begins_ms[order] < limit]
    return names[numpy.unique(numpy.concatenate((early, lane[uncertain])))]


def _order(places: Places, lane: Numbers) -> tuple[Numbers, Numbers]:
    """Return the order of the jobs, and the places in it that cannot be distinguished from their neighbours."""
    order = _sorted_by(lane, places.sequence, places.created_ms)
    tied = _tied(order, lane, places.sequence, places.created_ms)
    if not len(tied):
        return order, tied
    # Created in the same millisecond: their ids decide.
    names = (places.first_bytes.view(numpy.uint64), places.next_bytes.view(numpy.uint64))
    some = order[tied]
    keys = (*reversed(names), places.created_ms, places.sequence, lane)
    order[tied] = some[numpy.lexsort([key[some] for key in keys])]
    return order, _tied(order, lane, places.sequence, places.created_ms, *names)


def _sorted_by(*keys: Numbers) -> Numbers:
    """Return the order by several keys; keys that fit into one number are sorted as one."""
    together, bits = numpy.zeros(len(keys[0]), dtype=numpy.int64), 0
    for key in keys:
        least = int(key.min())
        width = (int(key.max()) - least).bit_length()
        bits += width
        if bits > 63:
            return numpy.lexsort(keys[::-1])
        together = together << width | key - least
    return numpy.argsort(together)


def _tied(order: Numbers, *keys: NDArray[numpy.integer]) -> Numbers:
    """Return the places in an order with the same keys as a neighbour."""
    is_same = numpy.ones(len(order) - 1, dtype=bool)
    for key in keys:
        is_same &= numpy.diff(key[order]) == 0
    return numpy.flatnonzero(numpy.append(is_same, False) | numpy.insert(is_same, 0, False))


def _before(lane: Numbers, until_ms: Numbers) -> Numbers:
    """Return for each job the largest of those before it in its lane, or a negative number."""
    found = numpy.empty_like(until_ms)
    for first in range(0, int(lane[-1]) + 1, _LANES_AT_ONCE):
        start, end = numpy.searchsorted(lane, (first, first + _LANES_AT_ONCE))
        # Every lane has a span of numbers above those of the lanes before it, so one pass is enough.
        offset = (lane[start:end] - first) * _SPAN
        reached = numpy.maximum.accumulate(until_ms[start:end] + 1 + offset)
        found[start:end] = numpy.insert(reached[:-1], 0, 0) - offset - 1
    return found

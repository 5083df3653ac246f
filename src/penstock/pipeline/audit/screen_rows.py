"""A partition of the screen's rows as columns of numbers, unpacked and in the order of positions. Pure, vectorised."""

from collections.abc import Iterable, Iterator, Mapping

import numpy
import pyarrow

from penstock.jobs.model_attempt import AttemptOutcome
from penstock.pipeline.audit.rows import OUTCOMES
from penstock.pipeline.audit.screening import NONE_MS, Numbers, Rows

NUMBERS = ("sequence", "created_at_ms", "at_ms", "end_ms", "strict_ms", "untried_ms")
"""Columns that are numbers of their own; where there is none it is NONE_MS."""

PLACES = {"mode": 0, "owes_proof": 4, "suspicious": 8, "status": 16, "outcome": 24, "begun": 32}
"""At which bit each of the small numbers in `parts` begins; it has all bits up to the next."""

NO_OUTCOME = 255
MOST_BEGUN = (1 << 30) - 1

_COLUMNS = ("group", *NUMBERS, "job", "parts")
_POSITION = ("group", "sequence", "created_at_ms")
_DELIVERED = OUTCOMES.index(AttemptOutcome.DELIVERED)
_ENDS = (*list(PLACES.values())[1:], 63)
_PIECE = 500_000


def in_order(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[Rows]:
    """The rows of a partition by group, position and time, in pieces; a job may go on in the next one."""
    some = [batch for batch in batches if len(batch)]
    if some:
        table = pyarrow.Table.from_batches(some)
        columns = {name: table.column(name).to_numpy() for name in _COLUMNS}
        place = order_of(columns, table.column("id"))
        for start in range(0, len(place), _PIECE):
            yield _rows({name: column[place[start : start + _PIECE]] for name, column in columns.items()})


def order_of(columns: Mapping[str, Numbers], ids: pyarrow.ChunkedArray) -> Numbers:
    """Where the rows are, put in order."""
    keys = [columns[name] for name in ("at_ms", "job", *reversed(_POSITION))]
    place = numpy.lexsort(keys)
    tied = _tied(columns, place)
    if len(tied):
        # Jobs of one group made in one millisecond: their ids tell which of them is first.
        some = place[tied]
        names = ids.take(pyarrow.array(some)).fill_null("").to_pylist()
        _, rank = numpy.unique(numpy.array(names, dtype=object), return_inverse=True)
        of_some = [key[some] for key in keys]
        of_some[1] = rank
        place[tied] = some[numpy.lexsort(of_some)]
    return place


def _tied(columns: Mapping[str, Numbers], place: Numbers) -> Numbers:
    """Which places in the order have rows of jobs that have the same position but for the id."""
    same = numpy.ones(len(place) - 1, dtype=bool)
    for name in _POSITION:
        column = columns[name][place]
        same &= column[1:] == column[:-1]
    job = columns["job"][place]
    # Runs of the same position, and those among them in which the job changes; what has no time has no position.
    run = numpy.concatenate(([0], numpy.cumsum(~same)))
    changes = numpy.flatnonzero(same & (job[1:] != job[:-1]) & (columns["created_at_ms"][place][1:] != NONE_MS))
    is_mixed = numpy.zeros(int(run[-1]) + 1, dtype=bool)
    is_mixed[run[changes]] = True
    return numpy.flatnonzero(is_mixed[run])


def _rows(columns: Mapping[str, Numbers]) -> Rows:
    part = {
        name: columns["parts"] >> begin & ((1 << end - begin) - 1)
        for (name, begin), end in zip(PLACES.items(), _ENDS, strict=True)
    }
    outcome = numpy.where(part["outcome"] == NO_OUTCOME, -1, part["outcome"])
    held_ms = numpy.maximum(columns["end_ms"], columns["untried_ms"])
    return Rows(
        group=columns["group"],
        job=columns["job"],
        mode=part["mode"],
        at_ms=columns["at_ms"],
        end_ms=columns["end_ms"],
        strict_ms=columns["strict_ms"],
        loose_ms=numpy.where(part["mode"] > 0, held_ms, NONE_MS),
        delivered=(outcome == _DELIVERED).astype(numpy.int64),
        owes_proof=part["owes_proof"],
        suspicious=part["suspicious"],
        status=part["status"],
        outcome=outcome,
        begun=part["begun"],
    )

"""What the screen reads of jobs and attempts, as few columns of numbers: each costs by the row from Java to Python."""

from collections.abc import Sequence

import numpy
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import AttemptOutcome
from penstock.domain.pointer import DispatchMode
from penstock.history.audit.deliveries import owes_proof
from penstock.history.audit.order import strict_until, untried_until
from penstock.history.audit.packed_rows import Numbers
from penstock.history.audit.suspects import BLOCKS, LATEST_MS, NONE_MS, PASSES, AttemptColumns, Jobs, Places
from penstock.history.audit.window import (
    MODES,
    OUTCOMES,
    STATUSES,
    AuditWindow,
    attempt_damage,
    has_place,
    job_damage,
)

MOST_BEGUN = (1 << 19) - 1

_TIME_BITS = 44
"""Times are sent plus one, so that 0 means none; small values follow in the bits above."""

_SENT_JOB = ("job", "group", "sequence", "created", "held")
_SENT_ATTEMPT = ("job", "at_ms", "rest")
_NAME_BYTES = 16
_NUMBERS = {name: place for known in (MODES, STATUSES, OUTCOMES) for place, name in enumerate(known)}
_DELIVERED = OUTCOMES.index(AttemptOutcome.DELIVERED)
# Numbers that were packed into one between Java and Python are separated in Python, so that each can be narrow:
# `created` and `held` of a job, `rest` of an attempt. An id is two numbers.
JOB_WIDTH = len(_SENT_JOB) + 2 + 2
ATTEMPT_WIDTH = len(_SENT_ATTEMPT) + 1
PLACE_WIDTH = len(Places._fields)
_MODE, _STATUS, _OWES, _DAMAGED, _UNTRIED = 0, 2, 6, 7, 8
_LASTED_BITS, _OUTCOME, _ATTEMPT_DAMAGED = 30, 0, 4


def hash_of(name: str) -> Column:
    """Return the number that represents a text."""
    return f.xxhash64(f.col(name))


def sent_jobs(jobs: DataFrame, window: AuditWindow, *others: Column) -> DataFrame:
    """Return jobs as `job_columns` takes them, and other columns beside them."""
    is_placed = has_place(window, _number)
    is_blocking = f.col("mode") == _number(DispatchMode.BLOCK_ON_ERROR.value)
    mode = f.when(~is_placed, 0).when(is_blocking, BLOCKS).otherwise(PASSES)
    # A delivery in progress is not recorded yet; of older jobs, attempts are not read.
    under_way = (f.col("status") == _number(JobStatus.PROCESSING.value)).cast("int")
    begun = f.when(f.col("created_at_ms") >= window.since_ms, f.col("delivery_count") - under_way)
    # A time that is cut would give a wrong position.
    is_damaged = job_damage(window, _number).isNotNull() | f.coalesce(f.col("created_at_ms") > LATEST_MS, f.lit(False))
    marks = {
        _MODE: mode,
        _STATUS: f.coalesce("status", f.lit(len(STATUSES))),
        _OWES: owes_proof(window, _number),
        _DAMAGED: is_damaged,
        # For such a job both holds end at the same time, so one time is enough.
        _UNTRIED: is_placed & untried_until(_number).isNotNull(),
    }
    held_ms = f.when(is_placed, _cut(strict_until(_number))).otherwise(NONE_MS)
    some_begun = f.greatest(f.least(f.coalesce(begun, f.lit(0)), f.lit(MOST_BEGUN)), f.lit(0))
    return _numbered(jobs, mode=MODES, status=STATUSES).select(
        hash_of("id").alias("job"),
        hash_of("group_key").alias("group"),
        f.coalesce(f.col("sequence"), f.lit(0)).alias("sequence"),
        _packed(_cut(f.col("created_at_ms")) + 1, _TIME_BITS, marks).alias("created"),
        _packed(held_ms + 1, _TIME_BITS, {0: some_begun}).alias("held"),
        "id",
        *others,
    )


def sent_attempts(attempts: DataFrame, window: AuditWindow) -> DataFrame:
    """Return attempts as `attempt_columns` takes them."""
    at_ms = _cut(f.col("at_ms"))
    is_damaged = attempt_damage(window, _number).isNotNull()
    rest = {_OUTCOME: f.coalesce("outcome", f.lit(len(OUTCOMES))), _ATTEMPT_DAMAGED: is_damaged}
    return _numbered(attempts, outcome=OUTCOMES).select(
        hash_of("job_id").alias("job"),
        at_ms.alias("at_ms"),
        _packed(_cut(f.col("end_ms")) - at_ms, _LASTED_BITS, rest).alias("rest"),
    )


def job_columns(batch: pyarrow.RecordBatch) -> list[Numbers]:
    """Return a batch of `sent_jobs` as JOB_WIDTH columns of numbers; an id is two."""
    job, group, sequence, created, held = _columns(batch, _SENT_JOB)
    return [
        job,
        group,
        sequence,
        *_parted(created, _TIME_BITS),
        *_parted(held, _TIME_BITS),
        *_names(batch.column("id")),
    ]


def attempt_columns(batch: pyarrow.RecordBatch) -> list[Numbers]:
    """Return a batch of `sent_attempts` as ATTEMPT_WIDTH columns of numbers."""
    job, at_ms, rest = _columns(batch, _SENT_ATTEMPT)
    return [job, at_ms, *_parted(rest, _LASTED_BITS)]


def jobs_of_columns(columns: Numbers) -> tuple[Jobs, Numbers]:
    """Return jobs, and the number of each one's status."""
    job, group, sequence, created, marks, held, begun, first_bytes, next_bytes = columns
    jobs = Jobs(
        job=job,
        group=group,
        sequence=sequence,
        created_ms=created - 1,
        mode=_bits(marks, _MODE, 2),
        strict_ms=held - 1,
        untried=_bits(marks, _UNTRIED, 1) > 0,
        owes_proof=_bits(marks, _OWES, 1) > 0,
        is_damaged=_bits(marks, _DAMAGED, 1) > 0,
        begun=begun,
        first_bytes=first_bytes,
        next_bytes=next_bytes,
    )
    return jobs, _bits(marks, _STATUS, 4)


def attempts_of_columns(columns: Numbers) -> tuple[AttemptColumns, Numbers]:
    """Return attempts, and the number of each one's outcome."""
    job, at_ms, lasted_ms, marks = columns
    outcome = _bits(marks, _OUTCOME, 4)
    is_damaged = _bits(marks, _ATTEMPT_DAMAGED, 1) > 0
    return AttemptColumns(job, at_ms, at_ms + lasted_ms, outcome == _DELIVERED, is_damaged), outcome


def _columns(batch: pyarrow.RecordBatch, names: Sequence[str]) -> list[Numbers]:
    return [batch.column(name).to_numpy() for name in names]


def _parted(numbers: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """Return the lowest bits of numbers, and the bits above them."""
    return numbers & ((1 << width) - 1), numbers >> width


def _bits(numbers: Numbers, first: int, width: int) -> Numbers:
    found: NDArray[numpy.int64] = numbers >> first & ((1 << width) - 1)
    return found


def _packed(low: Column, width: int, above: dict[int, Column]) -> Column:
    """Return a number of `width` bits, with others at places above it."""
    packed = low.cast("long")
    for place, number in above.items():
        packed = packed.bitwiseOR(f.shiftleft(number.cast("long"), width + place))
    return packed


def _cut(time: Column) -> Column:
    """Return a time within the bounds of the screen; null becomes NONE_MS."""
    return f.greatest(f.least(f.coalesce(time, f.lit(NONE_MS)), f.lit(LATEST_MS)), f.lit(NONE_MS))


def _number(name: str) -> int:
    """Return the number of a mode, a status or an outcome in rows that are `_numbered`."""
    return _NUMBERS[name]


def _numbered(rows: DataFrame, **columns: Sequence[str]) -> DataFrame:
    """Replace names by numbers, so that each is compared as text only once; null stays null."""
    return rows.withColumns({column: _numbers_of(column, known) for column, known in columns.items()})


def _numbers_of(column: str, known: Sequence[str]) -> Column:
    found = f.when(f.col(column) == known[0], _number(known[0]))
    for name in known[1:]:
        found = found.when(f.col(column) == name, _number(name))
    return found.when(f.col(column).isNotNull(), len(known))


def _names(ids: pyarrow.StringArray) -> Numbers:
    """Return the first 16 bytes of ids as two numbers each, padded with zeros."""
    starts = pyarrow.compute.binary_slice(ids.fill_null("").cast(pyarrow.binary()), 0, _NAME_BYTES)
    _, ends, data = starts.buffers()
    if len(starts) and numpy.frombuffer(ends, numpy.int32)[len(starts)] == _NAME_BYTES * len(starts):
        names = numpy.frombuffer(data, ">u8", 2 * len(starts))
    else:
        names = numpy.array(starts.to_pylist(), dtype=f"S{_NAME_BYTES}").view(">u8")
    return names.reshape(-1, 2).T.astype(numpy.uint64).view(numpy.int64)

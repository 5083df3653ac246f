"""Which jobs of lanes may be published now, and in which order: `domain.order.first_of_lane` on Arrow columns.

The rows of a lane stand together in one batch, so a task plans what it has read, a few thousand lanes at a time, and
sends only the jobs that may go.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy
import numpy.typing
import pyarrow
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from penstock.domain.pointer import DispatchMode
from penstock.spark.schemas import READY_JOBS

_TEXT = StringType()
_NUMBER = LongType()
_JOB = ("id", "mode", "sequence", "created_at_ms", "due_at_ms", "pool", "publish_round", "delivery_count")
_OFFSET_BASIS = numpy.uint32(2166136261)
_PRIME = numpy.uint32(16777619)
Numbers = numpy.typing.NDArray[numpy.int64]
Flags = numpy.typing.NDArray[numpy.bool_]
Hashes = numpy.typing.NDArray[numpy.uint32]

POSITION = ("sequence", "created_at_ms", "id")
"""A job's position in its lane."""

BLOCKER = ("blocker_sequence", "blocker_created_at_ms", "blocker_id")
"""The position of the first job that BLOCK_ON_ERROR jobs of the group must not pass; null when there is none."""

LANE_JOBS = StructType(
    [
        StructField("group_key", _TEXT, nullable=False),
        StructField("ordered", BooleanType(), nullable=False),
        StructField("turn", _NUMBER, nullable=False),
        StructField("paused", BooleanType(), nullable=False),
        StructField("lane_pool", _TEXT, nullable=False),
        StructField("on_their_way", ArrayType(_TEXT), nullable=False),
        *(StructField(name, _TEXT if name.endswith("_id") else _NUMBER) for name in BLOCKER),
        *(StructField(name, READY_JOBS[name].dataType) for name in _JOB),
        StructField("updated_at_ms", _NUMBER),
    ]
)
"""A job of a lane with what the plan needs to know of the lane; a lane without jobs is one row whose job is null."""

_LANE = ("group_key", "ordered", "turn")


def whole_lanes(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Return the same rows in batches that are cut only between lanes."""
    rest: list[pyarrow.RecordBatch] = []
    for batch in batches:
        if not len(batch):
            continue
        starts = numpy.flatnonzero(_starts(batch))
        if rest and (len(starts) > 1 or not _is_same_lane(rest[-1], batch)):
            cut = int(starts[1]) if _is_same_lane(rest[-1], batch) else 0
            yield pyarrow.concat_batches([*rest, batch.slice(0, cut)])
            rest, batch, starts = [], batch.slice(cut), starts[starts >= cut] - cut
        if len(starts) > 1:
            yield batch.slice(0, int(starts[-1]))
            batch = batch.slice(int(starts[-1]))
        rest.append(batch)
    if rest:
        yield pyarrow.concat_batches(rest)


def first_lanes(lanes: Iterable[pyarrow.RecordBatch], most_rows: int) -> Iterator[pyarrow.RecordBatch]:
    """Return as many of the first lanes as have `most_rows` rows together; the others are read and dropped."""
    left = most_rows
    for batch in lanes:
        if len(batch) > left:
            ends = numpy.append(numpy.flatnonzero(_starts(batch))[1:], len(batch))
            fit = int(ends[ends <= left].max(initial=0))
            batch, left = batch.slice(0, fit), 0
        else:
            left -= len(batch)
        if len(batch):
            yield batch


def planned(rows: pyarrow.RecordBatch, share: int) -> pyarrow.RecordBatch:
    """Return the jobs to publish now in order, up to `share` of each lane, with the columns `may_go` and `rank`.

    A lane without a ready job is one row that may not go: it can be put to sleep.
    """
    goes = _may_go(rows)
    starts = _starts(rows)
    order = _order(rows, starts, goes)
    if order is not None:
        rows, goes = rows.take(order), goes.take(order)
    firsts = numpy.flatnonzero(starts)
    rank = numpy.arange(len(rows)) - numpy.repeat(firsts, numpy.diff(firsts, append=len(rows))) + 1
    taken = (_flags(goes) & (rank <= share)) | (rank == 1)
    rows = rows.append_column("may_go", goes).append_column("rank", pyarrow.array(rank))
    return rows if taken.all() else rows.filter(pyarrow.array(taken))


def _may_go(rows: pyarrow.RecordBatch) -> pyarrow.BooleanArray:
    """Return whether each row is a job that nothing holds back; never null. All jobs read are due and not expired."""
    is_job = rows.column("id").is_valid()
    is_free = pc.and_not(is_job, pc.or_(rows.column("paused"), _is_blocked(rows)))
    return pc.fill_null(is_free, False)


def _is_blocked(rows: pyarrow.RecordBatch) -> "pyarrow.BooleanArray | pyarrow.BooleanScalar":
    blocker_id = rows.column(BLOCKER[-1])
    if blocker_id.null_count == len(rows):
        return pyarrow.scalar(False)
    is_before, is_level = pyarrow.scalar(False), pyarrow.scalar(True)
    for name, blocker_name in zip(POSITION, BLOCKER, strict=True):
        place, blocker = rows.column(name), rows.column(blocker_name)
        is_before = pc.or_(is_before, pc.and_(is_level, pc.less(place, blocker)))
        is_level = pc.and_(is_level, pc.equal(place, blocker))
    waits = pc.and_(pc.equal(rows.column("mode"), DispatchMode.BLOCK_ON_ERROR.value), blocker_id.is_valid())
    return pc.and_not(waits, pc.fill_null(is_before, False))


def _starts(rows: pyarrow.RecordBatch) -> Flags:
    """Return where lanes begin."""
    starts = numpy.ones(len(rows), numpy.bool_)
    starts[1:] = False
    for name in _LANE:
        column = rows.column(name)
        starts[1:] |= _flags(pc.not_equal(column[1:], column[:-1]))
    return starts


def _is_same_lane(one: pyarrow.RecordBatch, other: pyarrow.RecordBatch) -> bool:
    return all(one.column(name)[-1].equals(other.column(name)[0]) for name in _LANE)


def _order(rows: pyarrow.RecordBatch, starts: Flags, goes: pyarrow.BooleanArray) -> pyarrow.Array | None:
    """Return the order in which the ready jobs of each lane come first; None if the rows already have it."""
    keys: list[Numbers] = [
        numpy.cumsum(starts),
        (~_flags(goes)).astype(numpy.int64),
        *(_numbers(rows.column(name)) for name in POSITION[:-1]),
    ]
    is_level = numpy.ones(len(rows) - 1, numpy.bool_)
    is_wrong = numpy.zeros(len(rows) - 1, numpy.bool_)
    for key in keys:
        is_wrong |= is_level & (key[1:] < key[:-1])
        is_level &= key[1:] == key[:-1]
    ids = rows.column(POSITION[-1])
    if is_level.any():
        level = pyarrow.array(numpy.flatnonzero(is_level))
        is_wrong[is_level] = _flags(pc.fill_null(pc.less(ids.take(pc.add(level, 1)), ids.take(level)), False))
    if not is_wrong.any():
        return None
    names = ["lane", "rests", *POSITION]
    table = pyarrow.table([*map(pyarrow.array, keys), ids], names=names)
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])


def _flags(values: pyarrow.BooleanArray) -> Flags:
    flags: Flags = values.to_numpy(zero_copy_only=False)
    return flags


def _numbers(values: pyarrow.Array) -> Numbers:
    """Return integers with 0 for null: a row without a job is its lane's only one."""
    numbers: Numbers = pc.fill_null(values, 0).to_numpy()
    return numbers


def hashes_of(texts: pyarrow.Array) -> pyarrow.Array:
    """Return the 32-bit FNV-1a hash of each text, as `domain.partition` computes it; equal texts are hashed once."""
    encoded = texts.dictionary_encode()
    hashes = _fnv1a(encoded.dictionary)
    return pyarrow.array(hashes.astype(numpy.int64)).take(encoded.indices)


def group_hash(group_key: Column) -> Column:
    """Return the hash of a group's key as a column."""
    # Spark reads the kind of function from its type hints; the stubs require it as an argument.
    udf: Callable[..., Callable[[Column], Column]] = arrow_udf
    return udf(_hash_column, LongType())(group_key)


def _hash_column(texts: pyarrow.Array) -> pyarrow.Array:
    return hashes_of(texts)


def _fnv1a(texts: pyarrow.Array) -> Hashes:
    """Hash all texts at once, byte by byte: as many steps as the longest text has bytes."""
    if len(texts) == 0:
        return numpy.empty(0, numpy.uint32)
    if isinstance(texts, pyarrow.ChunkedArray):
        texts = texts.combine_chunks()
    binary = texts.cast(pyarrow.large_binary())
    _, offsets_buffer, data_buffer = binary.buffers()
    offsets = numpy.frombuffer(offsets_buffer, numpy.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = numpy.frombuffer(data_buffer or b"", numpy.uint8)
    starts, lengths = offsets[:-1], numpy.diff(offsets)
    # The longest first, so that the texts that still have a byte are a prefix.
    order = numpy.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    hashes = numpy.full(len(order), _OFFSET_BASIS, numpy.uint32)
    for place in range(int(lengths[0])):
        count = int(numpy.searchsorted(-lengths, -place, side="left"))
        hashes[:count] = (hashes[:count] ^ data[starts[:count] + place]) * _PRIME
    unordered = numpy.empty_like(hashes)
    unordered[order] = hashes
    return unordered

"""The hash that the queue's partitions are chosen by (`core.partition`), for a whole column at once."""

from collections.abc import Callable

import numpy
import numpy.typing
import pyarrow
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import LongType

_OFFSET_BASIS = numpy.uint32(2166136261)
_PRIME = numpy.uint32(16777619)

Hashes = numpy.typing.NDArray[numpy.uint32]


def hashes_of(texts: pyarrow.Array) -> pyarrow.Array:
    """The 32-bit FNV-1a hash of each text; equal texts are hashed once."""
    encoded = texts.dictionary_encode()
    hashes = _fnv1a(encoded.dictionary)
    return pyarrow.array(hashes.astype(numpy.int64)).take(encoded.indices)


def group_hash(group_key: Column) -> Column:
    """The hash of a group's key, for frames that do not carry it."""
    # Its kind is told by the type hints; Spark's own types know only of one that is named.
    udf: Callable[..., Callable[[Column], Column]] = arrow_udf
    return udf(_hash_column, LongType())(group_key)


def _hash_column(texts: pyarrow.Array) -> pyarrow.Array:
    return hashes_of(texts)


def _fnv1a(texts: pyarrow.Array) -> Hashes:
    """Byte by byte through all texts at once: as many steps as the longest text has bytes."""
    if len(texts) == 0:
        return numpy.empty(0, numpy.uint32)
    if isinstance(texts, pyarrow.ChunkedArray):
        texts = texts.combine_chunks()
    binary = texts.cast(pyarrow.large_binary())
    _, offsets_buffer, data_buffer = binary.buffers()
    offsets = numpy.frombuffer(offsets_buffer, numpy.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = numpy.frombuffer(data_buffer or b"", numpy.uint8)
    starts, lengths = offsets[:-1], numpy.diff(offsets)
    # The longest first: at each byte those that still have one are the first so many.
    order = numpy.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    hashes = numpy.full(len(order), _OFFSET_BASIS, numpy.uint32)
    for place in range(int(lengths[0])):
        count = int(numpy.searchsorted(-lengths, -place, side="left"))
        hashes[:count] = (hashes[:count] ^ data[starts[:count] + place]) * _PRIME
    unordered = numpy.empty_like(hashes)
    unordered[order] = hashes
    return unordered

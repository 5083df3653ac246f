"""Spark's `xxhash64` of numbers in numpy, so that Java and Python sum up the same."""

import numpy
from numpy.typing import NDArray

from penstock.pipeline.audit.narrow_rows import Numbers

_PRIMES = [
    numpy.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
]


_SEED = 42


def number_hash(numbers: Numbers) -> Numbers:
    """What `xxhash64(number)` is."""
    return pair_hash(numpy.full_like(numbers, _SEED), numbers)


def pair_hash(hashes: Numbers, numbers: Numbers) -> Numbers:
    """What `xxhash64(something, number)` is, where `xxhash64(something)` is in `hashes`."""
    first, second, third, fourth, fifth = _PRIMES
    found = hashes.view(numpy.uint64) + (fifth + numpy.uint64(8))
    found ^= _rotated(numbers.view(numpy.uint64) * second, 31) * first
    found = _rotated(found, 27) * first + fourth
    found ^= found >> numpy.uint64(33)
    found *= second
    found ^= found >> numpy.uint64(29)
    found *= third
    found ^= found >> numpy.uint64(32)
    return found.view(numpy.int64)


def _rotated(numbers: "NDArray[numpy.uint64]", bits: int) -> "NDArray[numpy.uint64]":
    return numbers << numpy.uint64(bits) | numbers >> numpy.uint64(64 - bits)
